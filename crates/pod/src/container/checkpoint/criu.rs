//! The program criu(8).

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::fs::{Access, access};
use tokio::process::Command;

use crate::{Error, engine::blocking, error::failed};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const LOG: &str = "dump.log";
/// So many of its complaints are told.
const LINES: usize = 3;
/// Longest answer that is read, bytes.
const OUTPUT_MAX: usize = 64 << 10;
/// How much of the end of its log is read, bytes.
const LOG_MAX: u64 = 256 << 10;

/// What to dump.
pub(super) struct Dump<'a> {
    pub(super) pid: u32,
    pub(super) images: &'a Path,
    /// Of its log.
    pub(super) work: &'a Path,
    /// What is not the container's own, in CRIU's words.
    pub(super) externals: Vec<String>,
    /// By which all of its processes stop at once.
    pub(super) freezer: Option<PathBuf>,
}

pub(super) fn find() -> Result<PathBuf, Error> {
    let directories = PATH.split(':').map(Path::new);
    let mut programs = directories.map(|directory| directory.join("criu"));
    programs
        .find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok())
        .ok_or_else(|| Error::state(format!("criu is not in {PATH}; install the package criu")))
}

/// Whether it can work with this kernel at all: asked before anything is stopped.
pub(super) async fn check(program: &Path) -> Result<(), Error> {
    let (good, said) = run(Command::new(program).arg("check")).await?;
    match good {
        true => Ok(()),
        false => Err(Error::state(format!("criu cannot work with this kernel: {}", told(&said)))),
    }
}

/// The container goes on running afterwards.
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
    let (good, said) = run(&mut command).await?;
    if good {
        return Ok(());
    }
    let path = dump.work.join(LOG);
    let log = blocking(move || end_of(&path).map_err(failed("read criu's log"))).await;
    Err(Error::state(format!("criu: {}", told(&log.unwrap_or(said)))))
}

/// The end of a file, at most [`LOG_MAX`] bytes.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether it ended well, and what it wrote. It ends when this is dropped.
async fn run(command: &mut Command) -> Result<(bool, String), Error> {
    command.env_clear().env("PATH", PATH).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(failed("run criu"))?;
    let mut said = [output.stdout, output.stderr].concat();
    said.truncate(OUTPUT_MAX);
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The last of its complaints.
fn told(log: &str) -> String {
    // That a program which it ran ended says nothing beside why.
    let complains = |line: &&str| line.contains("Error") && !line.contains(": exited, status=");
    let lines: Vec<&str> = log.lines().filter(complains).map(str::trim).collect();
    match lines.len() {
        0 => "it did not say why".to_owned(),
        count => lines[count.saturating_sub(LINES)..].join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn the_last_complaints_are_told() {
        let log = "(00.1) fine\n(00.2) Error (a.c:1): one\n(00.3) Error (a.c:2): two\nError (x): exited, status=1\n\
                   (00.4) Error (a.c:3): three\n(00.5) Error (a.c:4): four\n";
        assert_eq!(told(log), "(00.3) Error (a.c:2): two; (00.4) Error (a.c:3): three; (00.5) Error (a.c:4): four");
        assert_eq!(told("nothing"), "it did not say why");
    }
}
