//! What a runtime writes to standard error while it creates a container. It is that of the container, too.

use std::{sync::Arc, time::Duration};

use rustix::fd::OwnedFd;

use crate::{
    Error,
    stdio::SharedPipe,
    store::{Container, PipeCalls},
};

/// How long the pipe is read.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read, and that are kept.
const READ_MAX: usize = 64 << 10;
/// Maximum number of bytes of the message.
const MESSAGE_MAX: usize = 512;

/// Adds what the runtime wrote to standard error to the error of a failed creation. `stderr` is the read end of the
/// pipe.
pub(crate) async fn add_message(error: Error, container: &Container, stderr: OwnedFd) -> Error {
    match last_line(stderr, &container.pipe_calls).await {
        // A runtime that writes the same to its log and to standard error is quoted once.
        Some(line) if !error.message.contains(&line) => {
            Error { message: format!("{}; the runtime wrote: {line}", error.message), ..error }
        }
        _ => error,
    }
}

async fn last_line(stderr: OwnedFd, calls: &Arc<PipeCalls>) -> Option<String> {
    let reader = SharedPipe::new(stderr, calls).reader_of_all(READ_MAX).ok()?;
    let _ = tokio::time::timeout(TIMEOUT, reader.drained(READ_MAX)).await;
    let bytes = reader.into_bytes().ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?.to_owned();
    line.retain(|character| !character.is_control());
    line.truncate(line.floor_char_boundary(MESSAGE_MAX));
    Some(line)
}
