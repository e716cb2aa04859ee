//! Counts the system calls and forks of one `run true` with strace. An interrupted call that is resumed counts once.

use std::{fs, io, path::Path};

use super::Contestant;

/// The counters, which are the same in every run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// System calls of the runtime and of the process of the container up to the execve(2) of its program.
    pub(crate) calls: usize,
    /// Processes and threads created.
    pub(crate) clones: usize,
}

/// Counts for a contestant; `None` if strace is not installed.
pub(crate) fn count(contestant: &mut Contestant, work_dir: &Path) -> io::Result<Option<Counts>> {
    if !["/usr/bin/strace", "/bin/strace"].iter().any(|path| Path::new(path).exists()) {
        return Ok(None);
    }
    let file = work_dir.join("strace");
    let words = contestant.runtime.run(&contestant.bundle(work_dir), &contestant.group, "bench-strace");
    let strace = ["strace", "-f", "-qq", "-o", &file.to_string_lossy()].map(str::to_owned);
    let sample = contestant.runner.run(strace.into_iter().chain(words).collect(), 0)?;
    if sample.code != 0 {
        let error = contestant.runner.last_error();
        return Err(io::Error::other(format!("{} under strace: {error}", contestant.runtime.name)));
    }
    Ok(Some(counts(&fs::read_to_string(&file)?)))
}

/// Parses a trace. The calls of the container's program after its execve(2) are the same for all runtimes and are
/// ignored.
fn counts(text: &str) -> Counts {
    let mut payload = None;
    let mut counts = Counts::default();
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(char::is_whitespace) else { continue };
        let call = call.trim_start();
        if payload == Some(pid) || call.starts_with("<...") || !call.starts_with(|c: char| c.is_ascii_lowercase()) {
            continue;
        }
        counts.calls += 1;
        if ["clone(", "clone3(", "fork(", "vfork("].iter().any(|name| call.starts_with(name)) {
            counts.clones += 1;
        }
        if call.starts_with("execve(\"/bin/true\"") && !call.contains("ENOENT") {
            payload = Some(pid);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn calls_of_the_payload_are_ignored() {
        let text = "10 execve(\"/usr/bin/r\", [], 0x0) = 0\n10 clone3({flags=0}) = 11\n11 unshare(0 <unfinished ...>\n\
                    11 <... unshare resumed>) = 0\n11 execve(\"/bin/true\", [], 0x0) = 0\n11 brk(NULL) = 1\n\
                    10 --- SIGCHLD {} ---\n10 wait4(11) = 11\n10 +++ exited with 0 +++\n";
        let counts = counts(text);
        assert_eq!((counts.calls, counts.clones), (5, 1));
    }
}
