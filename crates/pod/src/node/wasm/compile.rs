//! Runs `pinion-wasm compile`.

use std::{fs::File, process::Stdio};

use tokio::{io::AsyncReadExt, process::Command};

use crate::{Error, WasmHandler};

/// Most of the compiler's error message that is reported, bytes.
const MESSAGE_MAX: u64 = 2048;

/// Compiles a module. The process confines itself before it reads the module; here its time is limited.
///
/// # Errors
/// `InvalidArgument`: the module is not valid, or its compilation exceeds a limit.
pub(super) async fn compile(handler: &WasmHandler, module: File, output: File) -> Result<(), Error> {
    let error = |cause: String| Error::invalid(format!("compile the WebAssembly module: {cause}"));
    let mut command = Command::new(&handler.binary);
    command
        .arg("compile")
        .arg(format!("--memory={}", handler.compile_memory_max))
        .arg(format!("--cpu={}", handler.compile_timeout.as_secs().max(1)))
        .arg(format!("--output={}", handler.cache_size_max))
        .env_clear()
        .stdin(module)
        .stdout(output)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let run = |cause| Error::state(format!("run {}: {cause}", handler.binary.display()));
    let mut child = command.spawn().map_err(run)?;
    let mut stderr = child.stderr.take().ok_or_else(|| error("the compiler has no standard error".to_owned()))?;
    let mut message = Vec::new();
    let wait = async {
        (&mut stderr).take(MESSAGE_MAX).read_to_end(&mut message).await?;
        drop(stderr);
        child.wait().await
    };
    let status = tokio::time::timeout(handler.compile_timeout, wait).await;
    let status = status.map_err(|_| error(format!("not finished after {:?}", handler.compile_timeout)))?;
    let status = status.map_err(|cause| error(cause.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&message);
    Err(error(match text.trim() {
        "" => format!("the compiler ended with {status}; it may need more memory than compile_memory_max"),
        text => text.trim_start_matches("pinion-wasm: ").to_owned(),
    }))
}
