use std::{
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

/// What a program printed, and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    pub(crate) fn of(command: &mut Command) -> Self {
        let line = format!("{command:?}");
        let output: Output = command.output().unwrap_or_else(|error| panic!("run {line}: {error}"));
        Self {
            command: line,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output, trimmed; panics unless the program succeeded.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.code, Some(0), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self.stdout.trim().to_owned()
    }

    /// Standard output as JSON; panics unless the program succeeded.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.command))
    }

    /// Standard error; panics if the program succeeded.
    #[track_caller]
    pub fn error(&self) -> String {
        assert_ne!(self.code, Some(0), "{} succeeded: {}", self.command, self.stdout);
        self.stderr.trim().to_owned()
    }
}

/// Waits until a condition holds; panics with what was waited for after 20 s (a bound for a broken run, not a measure).
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "did not happen within 20 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
