//! What a runtime writes to standard error while it creates a container. It is that of the container, too.

use std::{sync::Arc, time::Duration};

use rustix::fd::OwnedFd;
use serde::Deserialize;

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

/// A line of a log in the format `json`.
#[derive(Deserialize)]
struct Logged {
    msg: String,
}

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
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(message(line))
}

/// Returns the message of a line: crun and youki write JSON to standard error, too.
fn message(line: &str) -> String {
    let logged = serde_json::from_str(line).map(|Logged { msg }| msg);
    let mut line = logged.unwrap_or_else(|_| line.to_owned());
    line.retain(|character| !character.is_control());
    line.truncate(line.floor_char_boundary(MESSAGE_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_line_is_its_text_or_that_in_its_json() {
        assert_eq!(message("exec: \u{1b}no such file"), "exec: no such file");
        assert_eq!(message(r#"{"msg":"read from sync socket","level":"error","time":"t"}"#), "read from sync socket");
        assert_eq!(message(&"x".repeat(1000)).len(), MESSAGE_MAX);
    }
}
