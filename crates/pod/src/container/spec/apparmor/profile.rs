//! Loading the default profile into the kernel, by apparmor_parser(8).

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

/// The profile; an administrator's of the same name in [`POLICY`] has precedence.
const TEXT: &str = include_str!("../../../../../../dist/apparmor/pinion-default");
/// Where profiles and what they include are.
const POLICY: &str = "/etc/apparmor.d";
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// A profile is compiled in less than a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// After a failure it is not tried for so long.
const BACKOFF: Duration = Duration::from_secs(10);
/// How much of what the parser writes is kept, bytes.
const OUTPUT_MAX: u64 = 1024;

/// When it was tried last, and why that failed.
static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);

fn last() -> MutexGuard<'static, Option<(Instant, String)>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why the last attempt failed; `None`: it did not, or there was none.
pub(super) fn failure() -> Option<String> {
    // Not waited for: it is being tried.
    LAST.try_lock().ok()?.as_ref().map(|(_, why)| why.clone())
}

/// Loads it; one caller at a time. Blocks.
pub(super) fn load() -> Result<(), String> {
    let mut last = last();
    if let Some((_, why)) = last.as_ref().filter(|(tried, _)| tried.elapsed() < BACKOFF) {
        return Err(why.clone());
    }
    let loaded = find(&DIRECTORIES.map(Path::new)).and_then(|parser| run(&parser, Path::new(POLICY)));
    *last = loaded.as_ref().err().map(|why| (Instant::now(), why.clone()));
    loaded
}

fn find(directories: &[&Path]) -> Result<PathBuf, String> {
    let mut programs = directories.iter().map(|directory| directory.join("apparmor_parser"));
    let found = programs.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok());
    found.ok_or_else(|| "apparmor_parser is not installed".to_owned())
}

/// Replaces the profile and writes no cache (`-Kr`).
fn run(parser: &Path, policy: &Path) -> Result<(), String> {
    let with_program = |e: std::io::Error| format!("{}: {e}", parser.display());
    let own = policy.join(super::DEFAULT);
    let own = fs::read_to_string(own).unwrap_or_else(|_| TEXT.to_owned());
    let mut child = Command::new(parser)
        .arg("-Kr")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(with_program)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end without having read it all; its status says whether.
        let _ = stdin.write_all(text(&own, policy).as_bytes());
    }
    let ended = wait(&mut child).map_err(with_program)?;
    if !ended {
        return Err(format!("{} did not end within {} s", parser.display(), PATIENCE.as_secs()));
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

/// Whether it ended in time; else it is killed.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0;
    if !ended {
        child.kill()?;
        child.wait()?;
    }
    Ok(ended)
}

/// The profile for a node that may lack what it includes.
fn text(profile: &str, policy: &Path) -> String {
    let mut missing = false;
    let there = |line: &&str| {
        let name = line.trim().strip_prefix("#include <").and_then(|rest| rest.strip_suffix('>'));
        let there = name.is_none_or(|name| policy.join(name).exists());
        missing |= !there;
        there
    };
    let lines: Vec<&str> = profile.lines().filter(there).collect();
    // Of tunables/global this is all that it needs.
    let variables = if missing { "@{PROC}=/proc/\n" } else { "" };
    format!("{variables}{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_includes_what_the_node_has() {
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
    fn the_parser_reads_the_profile_and_says_what_is_wrong() {
        let (policy, programs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        assert_eq!(find(&[programs.path()]).expect_err("none"), "apparmor_parser is not installed");
        let parser = programs.path().join("apparmor_parser");
        // Written by another process: one that is forked here meanwhile must not have it open for writing (ETXTBSY).
        let script = |text: &str| {
            let write = ["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""];
            let status = Command::new("sh").args(write).arg(&parser).arg(text).status().expect("sh runs");
            assert!(status.success());
        };
        let copy = programs.path().join("copy");
        script(&format!("[ \"$*\" = -Kr ] && cat > {}", copy.display()));
        run(&find(&[programs.path()]).expect("there"), policy.path()).expect("loaded");
        assert_eq!(fs::read_to_string(&copy).expect("the profile"), text(TEXT, policy.path()));
        fs::write(policy.path().join("pinion-default"), "profile pinion-default {}").expect("an administrator's");
        run(&parser, policy.path()).expect("loaded");
        assert_eq!(fs::read_to_string(&copy).expect("the profile"), "profile pinion-default {}\n");
        script("echo Permission denied >&2; exit 4");
        let why = run(&parser, policy.path()).expect_err("refused");
        assert!(why.ends_with("exit status: 4: Permission denied"), "{why}");
    }
}
