//! Runs `pinion-wasm compile`.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    thread,
};

use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use syscall::scheduling::with_default_nice;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{Error, WasmHandler, error::failed};

/// Most of the compiler's error message that is reported, bytes.
const MESSAGE_MAX: u64 = 2048;
/// Stack of the thread that waits for the compiler, bytes.
const STACK: usize = 256 << 10;
/// Exit code of the compiler if the node failed and not the module (`EX_IOERR` of sysexits.h).
const NODE_FAILED: i32 = 74;

/// A running compiler. It is killed when this is dropped.
struct Compiler(OwnedFd);

impl Drop for Compiler {
    fn drop(&mut self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// Compiles a module. The process confines itself before it reads the module; here its time is limited. `permit` is held
/// until the process has ended, which may be later than this returns.
///
/// # Errors
/// `InvalidArgument`: the module is not valid, or its compilation exceeds a limit. `Unavailable`: the node is short of memory,
/// or of space for the code.
pub(super) async fn compile(
    handler: &WasmHandler,
    (module, output): (File, File),
    permit: OwnedSemaphorePermit,
) -> Result<(), Error> {
    let error = |cause: String| Error::invalid(format!("compile the WebAssembly module: {cause}"));
    let command = command(handler, module, output);
    let (started, compiler) = oneshot::channel();
    let (ended, outcome) = oneshot::channel();
    // A thread of its own: the compiler is killed when the thread ends that started it, which is then the end of the daemon.
    let thread = thread::Builder::new().name("wasm-compiler".to_owned()).stack_size(STACK).spawn(move || {
        let outcome = run(command, started);
        drop(permit);
        // The caller may be gone.
        let _ = ended.send(outcome);
    });
    thread.map_err(failed("start a thread for the compiler"))?;
    let wait = async {
        // Absent if it did not start: then the outcome is the reason.
        let compiler = compiler.await;
        let outcome = outcome.await;
        drop(compiler);
        outcome
    };
    let outcome = tokio::time::timeout(handler.compile_timeout, wait).await;
    let outcome = outcome.map_err(|_| error(format!("not finished after {:?}", handler.compile_timeout)))?;
    let outcome = outcome.map_err(failed("wait for the compiler"))?;
    let (status, message) =
        outcome.map_err(|cause| Error::state(format!("run {}: {cause}", handler.binary.display())))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&message);
    let error = error(match text.trim() {
        // Its own limits have other signals.
        _ if status.signal() == Some(Signal::KILL.as_raw()) => {
            "the compiler was killed; the node may be short of memory".to_owned()
        }
        "" => format!("the compiler ended with {status}; it may need more than compile_memory_max or compile_timeout"),
        text => text.trim_start_matches("pinion-wasm: ").to_owned(),
    });
    let is_of_node = status.code() == Some(NODE_FAILED) || status.signal() == Some(Signal::KILL.as_raw());
    Err(if is_of_node { Error::unavailable(error.message) } else { error })
}

fn command(handler: &WasmHandler, module: File, output: File) -> Command {
    let mut command = Command::new(&handler.binary);
    command
        .arg("compile")
        .arg(format!("--memory={}", handler.compile_memory_max))
        .arg(format!("--cpu={}", handler.compile_timeout.as_secs().max(1)))
        .arg(format!("--output={}", handler.cache_size_max))
        .arg(format!("--parent={}", std::process::id()))
        .env_clear()
        .current_dir("/")
        .stdin(module)
        .stdout(output)
        .stderr(Stdio::piped());
    command
}

/// Runs the compiler, and returns its status and the beginning of its error message. Blocks.
fn run(mut command: Command, started: oneshot::Sender<Compiler>) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = with_default_nice(|| command.spawn())?;
    // Closes its copies of the files.
    drop(command);
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        // Dropped, and so killed, if the caller is gone.
        Ok(pidfd) => drop(started.send(Compiler(pidfd))),
        Err(errno) => {
            child.kill()?;
            child.wait()?;
            return Err(errno.into());
        }
    }
    let mut message = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(MESSAGE_MAX).read_to_end(&mut message)?;
    }
    Ok((child.wait()?, message))
}
