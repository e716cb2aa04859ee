use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use crate::reaper::{self, DEADLINE};

/// Exit code and output of a call.
#[derive(Debug)]
pub struct Outcome {
    /// Command line, for messages.
    pub command: String,
    /// Exit code, or 128 + the signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command with its output in two files of `directory`. With pipes, a container that keeps running would
    /// keep them open, and reading them would not end.
    #[track_caller]
    #[expect(clippy::zombie_processes, reason = "the reaper waits for all children")]
    pub(crate) fn run(command: &mut Command, directory: &Path, name: &str) -> Self {
        let (out, err) = (directory.join(format!("{name}.out")), directory.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let line = format!("{command:?}");
        command.stdout(create(&out)).stderr(create(&err));
        let mut child = reaper::spawn(command).unwrap_or_else(|error| panic!("run {line}: {error}"));
        let Ok(code) = reaper::wait(child.id() as i32) else {
            let _ = child.kill();
            panic!("still running after {DEADLINE:?}: {line}");
        };
        let code = code.expect("the exit code of a child");
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Self { command: line, code, stdout: read(&out), stderr: read(&err) }
    }

    /// Returns standard output. Panics unless the call succeeded.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        &self.stdout
    }

    /// Returns standard output as JSON. Panics unless the call succeeded.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.command, self.stdout))
    }

    /// Returns standard error. Panics if the call succeeded or printed no error.
    #[track_caller]
    pub fn error(&self) -> &str {
        assert_ne!(self.code, 0, "succeeded: {}\n{}{}", self.command, self.stdout, self.stderr);
        assert!(!self.stderr.trim().is_empty(), "no error message: {}", self.command);
        &self.stderr
    }

    /// Panics unless the call failed and its message contains one of the words.
    ///
    /// crun reports a broken pipe instead of the reason if its child exits before it has read everything.
    #[track_caller]
    pub fn error_with(&self, words: &[&str]) {
        let text = self.error().to_lowercase();
        if self.command.contains("/crun\"") && text.contains("write to sync socket: broken pipe") {
            return;
        }
        assert!(
            words.iter().any(|word| text.contains(&word.to_lowercase())),
            "{}\nexpected one of {words:?} in: {text}",
            self.command
        );
    }

    /// Panics unless the exit code is `code`.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self
    }
}

/// Waits until a condition holds. Panics with `description` after 20 s.
#[track_caller]
pub fn wait_until(description: &str, condition: impl FnMut() -> bool) {
    testbed::wait_until(description, DEADLINE, condition);
}
