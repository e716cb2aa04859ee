//! Runs criu(8).

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::fs::{Access, access};
use tokio::process::Command;

use crate::{Error, error::failed, operation::blocking};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const LOG: &str = "dump.log";
/// How many of its last error lines are reported.
const ERROR_LINES: usize = 3;
/// Most output that is read, bytes.
const OUTPUT_MAX: usize = 64 << 10;
/// Most bytes that are read of the end of its log.
const LOG_MAX: u64 = 256 << 10;

/// Arguments of `criu dump`.
pub(super) struct Dump<'a> {
    pub(super) pid: u32,
    pub(super) images: &'a Path,
    /// Directory of its log.
    pub(super) work: &'a Path,
    /// Resources outside the container, as arguments of `--external`.
    pub(super) externals: Vec<String>,
    /// Freezer cgroup by which CRIU stops all processes at once.
    pub(super) freezer: Option<PathBuf>,
}

/// Finds the program.
pub(super) fn find() -> Result<PathBuf, Error> {
    let directories = PATH.split(':').map(Path::new);
    let mut programs = directories.map(|directory| directory.join("criu"));
    programs
        .find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok())
        .ok_or_else(|| Error::state(format!("criu is not in {PATH}; install the package criu")))
}

/// Checks that CRIU supports this kernel, before any process is stopped.
pub(super) async fn check(program: &Path) -> Result<(), Error> {
    let (success, output) = run(Command::new(program).arg("check")).await?;
    match success {
        true => Ok(()),
        false => Err(Error::state(format!("criu does not support this kernel: {}", last_errors(&output)))),
    }
}

/// Dumps the processes, which keep running afterwards.
pub(super) async fn dump(program: &Path, dump: &Dump<'_>) -> Result<(), Error> {
    let mut command = Command::new(program);
    command
        .args(["dump", "--tree", &dump.pid.to_string(), "--leave-running", "-v4", "--log-file", LOG])
        .arg("--images-dir")
        .arg(dump.images)
        .arg("--work-dir")
        .arg(dump.work)
        .args(["--tcp-established", "--file-locks", "--link-remap", "--ext-unix-sk", "--shell-job"])
        .args(["--manage-cgroups=ignore", "--external", "mnt[]:ms"]);
    for external in &dump.externals {
        command.arg("--external").arg(external);
    }
    if let Some(freezer) = &dump.freezer {
        command.arg("--freeze-cgroup").arg(freezer);
    }
    let (success, output) = run(&mut command).await?;
    if success {
        return Ok(());
    }
    let path = dump.work.join(LOG);
    let log = blocking(move || end_of(&path).map_err(failed("read criu's log"))).await;
    Err(Error::state(format!("criu: {}", last_errors(&log.unwrap_or(output)))))
}

/// Reads the end of a file, at most [`LOG_MAX`] bytes.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs the program. Returns whether it succeeded, and its output. It is killed if this future is dropped.
async fn run(command: &mut Command) -> Result<(bool, String), Error> {
    command.env_clear().env("PATH", PATH).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(failed("run criu"))?;
    let mut text = [output.stdout, output.stderr].concat();
    text.truncate(OUTPUT_MAX);
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// Returns the last error lines of a log.
fn last_errors(log: &str) -> String {
    // Lines on the exit of a helper program are left out: they do not contain the cause.
    let is_error = |line: &&str| line.contains("Error") && !line.contains(": exited, status=");
    let lines: Vec<&str> = log.lines().filter(is_error).map(str::trim).collect();
    match lines.len() {
        0 => "no error message in its output".to_owned(),
        count => lines[count.saturating_sub(ERROR_LINES)..].join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::last_errors;

    #[test]
    fn the_last_error_lines_are_reported() {
        let log = "(00.1) fine\n(00.2) Error (a.c:1): one\n(00.3) Error (a.c:2): two\nError (x): exited, status=1\n\
                   (00.4) Error (a.c:3): three\n(00.5) Error (a.c:4): four\n";
        assert_eq!(
            last_errors(log),
            "(00.3) Error (a.c:2): two; (00.4) Error (a.c:3): three; (00.5) Error (a.c:4): four"
        );
        assert_eq!(last_errors("nothing"), "no error message in its output");
    }
}
