use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::reaper::{self, DEADLINE};

/// How a call ended and what it printed.
#[derive(Debug)]
pub struct Outcome {
    /// The command line, for messages.
    pub command: String,
    /// Exit code, or 128 and the signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command with its output in two files of `directory`: a container that goes on holds no pipe that we wait
    /// for.
    #[track_caller]
    #[expect(clippy::zombie_processes, reason = "the reaper waits for all")]
    pub(crate) fn of(command: &mut Command, directory: &Path, name: &str) -> Self {
        let (out, err) = (directory.join(format!("{name}.out")), directory.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let line = format!("{command:?}");
        command.stdout(create(&out)).stderr(create(&err));
        let mut child = reaper::spawn(command).unwrap_or_else(|error| panic!("run {line}: {error}"));
        let Ok(code) = reaper::wait(child.id() as i32) else {
            let _ = child.kill();
            panic!("still running after {DEADLINE:?}: {line}");
        };
        let code = code.expect("a child is ours");
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Self { command: line, code, stdout: read(&out), stderr: read(&err) }
    }

    /// Standard output; panics unless the call succeeded.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        &self.stdout
    }

    /// Standard output as JSON; panics unless the call succeeded.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.command, self.stdout))
    }

    /// Standard error; panics if the call succeeded or said nothing.
    #[track_caller]
    pub fn error(&self) -> &str {
        assert_ne!(self.code, 0, "succeeded: {}\n{}{}", self.command, self.stdout, self.stderr);
        assert!(!self.stderr.trim().is_empty(), "no error message: {}", self.command);
        &self.stderr
    }

    /// Panics unless the call failed and said one of the words.
    ///
    /// crun tells of its own broken pipe in place of the reason, where its child ends before it has read all.
    #[track_caller]
    pub fn error_with(&self, words: &[&str]) {
        let text = self.error().to_lowercase();
        if self.command.contains("/crun\"") && text.contains("write to sync socket: broken pipe") {
            return;
        }
        assert!(
            words.iter().any(|word| text.contains(&word.to_lowercase())),
            "{}\nnone of {words:?} in: {text}",
            self.command
        );
    }

    /// Panics unless the exit code is this.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self
    }
}

/// Waits until a condition holds; panics with what was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "did not happen within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
