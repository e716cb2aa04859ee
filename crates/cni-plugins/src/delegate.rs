//! Runs a plugin program for a part of the work, as the specification describes delegation.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
};
use serde_json::Value;

use crate::{Error, PluginResult, Request};

/// Longest time that a program may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Longest output that is read, in bytes.
const OUTPUT_MAX: usize = 1 << 20;
/// Time between two looks at a program that has closed its output.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs `ADD` and parses the result.
pub(crate) fn add(kind: &str, request: &Request) -> Result<PluginResult, Error> {
    let output = run("ADD", kind, request)?;
    let value: Value = serde_json::from_slice(&output).map_err(|e| failed(kind, format!("its result: {e}")))?;
    PluginResult::parse(&value).map_err(|e| failed(kind, format!("its result: {e}")))
}

/// Runs a command with the parameters of the request and returns the program's output.
pub(crate) fn run(command: &'static str, kind: &str, request: &Request) -> Result<Vec<u8>, Error> {
    let program = find(kind, request)?;
    let mut config = request.config.clone();
    if let Some(previous) = &request.previous {
        config.insert("prevResult".into(), previous.to_json(&request.version));
    }
    let input = Value::Object(config).to_string();
    // The other parameters are those that this program was called with.
    let stdin = file_of(input.as_bytes()).map_err(|e| failed(kind, format!("pass its configuration: {e}")))?;
    let spawned = Command::new(&program).env("CNI_COMMAND", command).stdin(stdin).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|e| failed(kind, format!("start {}: {e}", program.display())))?;
    let finished = read_result(&mut child);
    if finished.is_err() {
        // It has failed already: what matters is that it ends.
        let _ = child.kill();
        let _ = child.wait();
    }
    let (output, is_success) = finished.map_err(|e| failed(kind, e.to_string()))?;
    if is_success { Ok(output) } else { Err(refused(kind, &output)) }
}

fn find(kind: &str, request: &Request) -> Result<PathBuf, Error> {
    let mut paths = request.directories.iter().map(|directory| directory.join(kind));
    paths.find(|path| path.is_file()).ok_or_else(|| failed(kind, "its program is not in CNI_PATH"))
}

/// Returns a file in memory with a content. Unlike a pipe it neither blocks nor breaks if the program does not read it.
fn file_of(content: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Reads the output of a program and waits for its end; returns the output, and whether it succeeded.
fn read_result(child: &mut Child) -> std::io::Result<(Vec<u8>, bool)> {
    let deadline = Instant::now() + TIMEOUT;
    let timed_out = || std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no result within {TIMEOUT:?}"));
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let mut buffer = [0; 4096];
        loop {
            let left = deadline.checked_duration_since(Instant::now()).ok_or_else(timed_out)?;
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let wait = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            let mut ready = [PollFd::new(&stdout, PollFlags::IN)];
            if poll(&mut ready, Some(&wait))? == 0 {
                continue;
            }
            let length = stdout.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            output.extend_from_slice(&buffer[..length]);
            if output.len() > OUTPUT_MAX {
                return Err(std::io::Error::other("its output is longer than 1 MiB"));
            }
        }
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((output, status.success()));
        }
        if Instant::now() > deadline {
            return Err(timed_out());
        }
        thread::sleep(PAUSE);
    }
}

fn failed(kind: &str, reason: impl Into<String>) -> Error {
    Error::Delegate { plugin: kind.to_owned(), code: None, reason: reason.into() }
}

fn refused(kind: &str, output: &[u8]) -> Error {
    let Ok(value) = serde_json::from_slice::<Value>(output) else { return failed(kind, "it failed without an error") };
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let reason = [text("msg"), text("details")].join(" ").trim().to_owned();
    Error::Delegate { plugin: kind.to_owned(), code: value.get("code").and_then(Value::as_u64), reason }
}
