use std::{
    process::{Command, Output},
    time::Duration,
};

/// Time limit of a wait.
const LIMIT: Duration = Duration::from_secs(20);

/// The output and exit code of a program.
#[derive(Debug)]
pub struct Outcome {
    /// The command line, for error messages.
    pub command: String,
    /// Exit code; `None` if a signal killed the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command and returns what it printed and its exit code.
    pub fn of(command: &mut Command) -> Self {
        let line = format!("{command:?}");
        let output: Output = command.output().unwrap_or_else(|error| panic!("run {line}: {error}"));
        Self {
            command: line,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns the trimmed standard output; panics if the program failed.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.code, Some(0), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self.stdout.trim().to_owned()
    }

    /// Returns the standard output as JSON; panics if the program failed.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.command))
    }

    /// Returns the trimmed standard error; panics if the program succeeded.
    #[track_caller]
    pub fn error(&self) -> String {
        assert_ne!(self.code, Some(0), "{} succeeded: {}", self.command, self.stdout);
        self.stderr.trim().to_owned()
    }
}

/// Waits until a condition holds. Panics with its description after 20 s, which is only a bound for failing tests.
#[track_caller]
pub fn wait_until(description: &str, condition: impl FnMut() -> bool) {
    testbed::wait_until(description, LIMIT, condition);
}
