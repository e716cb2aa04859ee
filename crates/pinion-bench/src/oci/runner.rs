//! The process that starts runtimes. It is small, single-threaded and in its own mount namespace, so that every runtime
//! is started under the same conditions, and so that a fork copies little memory. It reads a request per line from
//! standard input, and writes a response per line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    process::{Pid, Signal, kill_process_group},
};
use serde::{Deserialize, Serialize};

use crate::{engine::Failure, program};

/// Timeout of a run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of standard error that are read, from its end.
const ERROR_MAX: u64 = 4096;

/// The differences between the mount namespace of the runner and that of the host.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunnerArguments {
    /// Hide the cgroup v2 hierarchy of a hybrid machine, for runtimes that fail with it.
    #[arg(long)]
    pub(crate) hide_v2: bool,
    /// State directories, each on a tmpfs, like `/run` on nodes.
    #[arg(long)]
    pub(crate) states: Vec<PathBuf>,
    /// Number of additional mounts.
    #[arg(long, default_value_t = 0)]
    pub(crate) mounts: usize,
    /// Directory for these mounts.
    #[arg(long)]
    pub(crate) place: Option<PathBuf>,
}

/// A request to start a program.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    words: Vec<String>,
    idle_ms: u64,
    errors: PathBuf,
}

/// The measurements of one run of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) wall_us: f64,
    pub(crate) cpu_us: u64,
    pub(crate) context_switches: u64,
    pub(crate) written_bytes: u64,
    /// Exit code, or 128 + the signal number.
    pub(crate) code: i32,
    /// Whether it was killed at the timeout.
    pub(crate) has_timed_out: bool,
}

/// Serves requests; the implementation of `pinion-bench oci-runner`.
pub(crate) fn serve(arguments: &RunnerArguments) -> Result<(), Failure> {
    prepare(arguments).map_err(|error| Failure(format!("prepare the mount namespace of the runner: {error}")))?;
    for line in io::stdin().lock().lines() {
        let response = line.and_then(|line| run(&line)).map_err(|error| error.to_string());
        let text = serde_json::to_string(&response).map_err(|error| Failure(error.to_string()))?;
        if writeln!(io::stdout(), "{text}").is_err() {
            break;
        }
    }
    Ok(())
}

fn prepare(arguments: &RunnerArguments) -> io::Result<()> {
    syscall::mount_namespace::unshare_mounts()?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    if arguments.hide_v2 && Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
        unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH)?;
    }
    for directory in &arguments.states {
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), None)?;
    }
    if let Some(parent) = &arguments.place {
        mount("tmpfs", parent, "tmpfs", MountFlags::empty(), None)?;
        for number in 0..arguments.mounts {
            let directory = parent.join(number.to_string());
            std::fs::create_dir(&directory)?;
            mount("tmpfs", &directory, "tmpfs", MountFlags::empty(), Some(c"size=4k"))?;
        }
    }
    Ok(())
}

fn run(line: &str) -> io::Result<Sample> {
    let request: Request = serde_json::from_str(line)?;
    let (program, arguments) = request.words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let errors = File::create(&request.errors)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
    std::thread::sleep(Duration::from_millis(request.idle_ms));
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("no pid"))?;
    let has_ended = program::ends(pid, TIMEOUT)?;
    if !has_ended {
        kill_process_group(pid, Signal::KILL)?;
    }
    let usage = syscall::wait_usage::wait_with_usage(pid)?;
    let wall_us = start.elapsed().as_secs_f64() * 1e6;
    let signal = usage.status & 0x7f;
    let code = if signal == 0 { usage.status >> 8 & 0xff } else { 128 + signal };
    Ok(Sample {
        wall_us,
        cpu_us: usage.cpu_us,
        context_switches: usage.context_switches,
        written_bytes: usage.written_bytes,
        code,
        has_timed_out: !has_ended,
    })
}

/// A running runner process.
#[derive(Debug)]
pub(crate) struct Runner {
    child: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
    errors: PathBuf,
}

impl Runner {
    /// Starts the runner. The standard error of runtimes is written to the file `errors`.
    pub(crate) fn start(arguments: &RunnerArguments, errors: PathBuf) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        // In a process group of its own, an interrupt from the terminal does not cut a measurement short.
        command.arg("oci-runner").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        if arguments.hide_v2 {
            command.arg("--hide-v2");
        }
        for directory in &arguments.states {
            command.arg("--states").arg(directory);
        }
        if let Some(place) = &arguments.place {
            command.arg("--mounts").arg(arguments.mounts.to_string()).arg("--place").arg(place);
        }
        let mut child = command.spawn()?;
        let missing = || io::Error::other("no pipe to the runner");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let responses = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, requests, responses, errors })
    }

    /// Runs a program until it exits.
    pub(crate) fn run(&mut self, words: Vec<String>, idle_ms: u64) -> io::Result<Sample> {
        let request = Request { words, idle_ms, errors: self.errors.clone() };
        writeln!(self.requests, "{}", serde_json::to_string(&request)?)?;
        let mut line = String::new();
        if self.responses.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the runner exited"));
        }
        let response: Result<Sample, String> = serde_json::from_str(&line)?;
        response.map_err(io::Error::other)
    }

    /// Returns the last line that a runtime wrote to standard error.
    pub(crate) fn last_error(&self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.errors).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(ERROR_MAX)))?;
            file.take(ERROR_MAX).read_to_end(&mut bytes)
        });
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().rfind(|line| !line.trim().is_empty()).filter(|_| read.is_ok());
        line.unwrap_or("no error message").chars().take(300).collect()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The runner would exit at the end of its input, but it may be blocked on a runtime.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
