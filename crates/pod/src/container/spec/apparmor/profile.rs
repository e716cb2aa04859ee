//! Loads the default profile into the kernel with apparmor_parser(8).

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, access},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The default profile. A file of the same name in [`POLICY`], written by an administrator, has precedence.
const TEXT: &str = include_str!("../../../../../../dist/apparmor/pinion-default");
/// Directory of profiles and of the files that they include.
const POLICY: &str = "/etc/apparmor.d";
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Time limit of the parser, which normally compiles a profile in less than a second.
const PARSER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after a failure loading is not attempted again.
const BACKOFF: Duration = Duration::from_secs(10);
/// Most bytes of the parser's output that are used in an error.
const OUTPUT_MAX: u64 = 1024;

/// Time and error of the last attempt; `None` if it succeeded or there was none.
static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);

fn last() -> MutexGuard<'static, Option<(Instant, String)>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error of the last attempt; `None` if it succeeded or there was none.
pub(super) fn failure() -> Option<String> {
    // The lock is held while an attempt is in progress, which this function must not wait for.
    LAST.try_lock().ok()?.as_ref().map(|(_, error)| error.clone())
}

/// Loads the profile; one caller at a time. Blocks.
pub(super) fn load() -> Result<(), String> {
    let mut last = last();
    if let Some((_, error)) = last.as_ref().filter(|(at, _)| at.elapsed() < BACKOFF) {
        return Err(error.clone());
    }
    let loaded = find(&DIRECTORIES.map(Path::new)).and_then(|parser| run(&parser, Path::new(POLICY)));
    *last = loaded.as_ref().err().map(|error| (Instant::now(), error.clone()));
    loaded
}

fn find(directories: &[&Path]) -> Result<PathBuf, String> {
    let mut programs = directories.iter().map(|directory| directory.join("apparmor_parser"));
    let program = programs.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok());
    program.ok_or_else(|| "apparmor_parser is not installed".to_owned())
}

/// Replaces the profile and writes no cache (`-Kr`).
fn run(parser: &Path, policy: &Path) -> Result<(), String> {
    let with_program = |e: std::io::Error| format!("{}: {e}", parser.display());
    let administrators = policy.join(super::DEFAULT);
    let profile = fs::read_to_string(administrators).unwrap_or_else(|_| TEXT.to_owned());
    let mut child = Command::new(parser)
        .arg("-Kr")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(with_program)?;
    if let Some(mut stdin) = child.stdin.take() {
        // The parser may exit before it has read everything; its exit status shows whether that is an error.
        let _ = stdin.write_all(text(&profile, policy).as_bytes());
    }
    let exited = wait(&mut child).map_err(with_program)?;
    if !exited {
        return Err(format!("{}: timed out after {} s", parser.display(), PARSER_TIMEOUT.as_secs()));
    }
    let status = child.wait().map_err(with_program)?;
    let mut output = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(OUTPUT_MAX).read_to_string(&mut output);
    }
    match status.success() {
        true => Ok(()),
        false => Err(format!("{}: {status}: {}", parser.display(), output.trim())),
    }
}

/// Waits until the parser exits. Returns whether it did in time; otherwise it is killed.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: PARSER_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let exited = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0;
    if !exited {
        child.kill()?;
        child.wait()?;
    }
    Ok(exited)
}

/// Returns the profile without the lines that include files which the node does not have.
fn text(profile: &str, policy: &Path) -> String {
    let mut missing = false;
    let is_available = |line: &&str| {
        let name = line.trim().strip_prefix("#include <").and_then(|rest| rest.strip_suffix('>'));
        let exists = name.is_none_or(|name| policy.join(name).exists());
        missing |= !exists;
        exists
    };
    let lines: Vec<&str> = profile.lines().filter(is_available).collect();
    // The only variable of tunables/global that the profile needs.
    let variables = if missing { "@{PROC}=/proc/\n" } else { "" };
    format!("{variables}{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_includes_only_existing_files() {
        let policy = tempfile::tempdir().expect("a directory");
        let bare = text(TEXT, policy.path());
        assert!(bare.starts_with("@{PROC}=/proc/\n") && !bare.contains("#include"), "{bare}");
        assert!(bare.contains("profile pinion-default flags="), "{bare}");
        for (directory, name) in [("tunables", "global"), ("abstractions", "base")] {
            fs::create_dir(policy.path().join(directory)).expect("a directory");
            fs::write(policy.path().join(directory).join(name), "").expect("a file");
        }
        assert_eq!(text(TEXT, policy.path()), TEXT);
    }

    #[test]
    fn the_parser_gets_the_profile_and_its_errors_are_reported() {
        let (policy, programs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        assert_eq!(find(&[programs.path()]).expect_err("none"), "apparmor_parser is not installed");
        let parser = programs.path().join("apparmor_parser");
        // Written by another process, so that no process forked here in the meantime has it open for writing (ETXTBSY).
        let script = |text: &str| {
            let write = ["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""];
            let status = Command::new("sh").args(write).arg(&parser).arg(text).status().expect("sh runs");
            assert!(status.success());
        };
        let copy = programs.path().join("copy");
        script(&format!("[ \"$*\" = -Kr ] && cat > {}", copy.display()));
        run(&find(&[programs.path()]).expect("installed"), policy.path()).expect("loaded");
        assert_eq!(fs::read_to_string(&copy).expect("the profile"), text(TEXT, policy.path()));
        fs::write(policy.path().join("pinion-default"), "profile pinion-default {}")
            .expect("write the administrator's profile");
        run(&parser, policy.path()).expect("loaded");
        assert_eq!(fs::read_to_string(&copy).expect("the profile"), "profile pinion-default {}\n");
        script("echo Permission denied >&2; exit 4");
        let why = run(&parser, policy.path()).expect_err("refused");
        assert!(why.ends_with("exit status: 4: Permission denied"), "{why}");
    }
}
