//! System calls and forks of one `run true`, counted by strace. A call that is interrupted and taken up again is one.

use std::{fs, io, path::Path};

use serde::Serialize;

use super::Contestant;

/// Counted, not timed: the same every time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Of the runtime and the container's process up to the program's own execve.
    pub(crate) calls: usize,
    /// Processes and threads made.
    pub(crate) clones: usize,
}

/// By contestant; `None` where strace is not installed.
pub(crate) fn count(contestants: &mut [Contestant], place: &Path) -> io::Result<Vec<Option<Counts>>> {
    if !["/usr/bin/strace", "/bin/strace"].iter().any(|path| Path::new(path).exists()) {
        eprintln!("pinion-bench: no strace (Debian: strace), system calls are not counted");
        return Ok(vec![None; contestants.len()]);
    }
    contestants.iter_mut().map(|contestant| count_of(contestant, place).map(Some)).collect()
}

fn count_of(contestant: &mut Contestant, place: &Path) -> io::Result<Counts> {
    let file = place.join("strace");
    let words = contestant.runtime.run(&contestant.bundle(place), &contestant.group, "bench-strace");
    let strace = ["strace", "-f", "-qq", "-o", &file.to_string_lossy()].map(str::to_owned);
    let sample = contestant.runner.run(strace.into_iter().chain(words).collect(), 0)?;
    if sample.code != 0 {
        let said = contestant.runner.last_error();
        return Err(io::Error::other(format!("{} under strace: {said}", contestant.runtime.name)));
    }
    Ok(counts(&fs::read_to_string(&file)?))
}

/// What the payload itself does after its execve is the same for all and left out.
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
    fn the_payloads_own_calls_are_left_out() {
        let text = "10 execve(\"/usr/bin/r\", [], 0x0) = 0\n10 clone3({flags=0}) = 11\n11 unshare(0 <unfinished ...>\n\
                    11 <... unshare resumed>) = 0\n11 execve(\"/bin/true\", [], 0x0) = 0\n11 brk(NULL) = 1\n\
                    10 --- SIGCHLD {} ---\n10 wait4(11) = 11\n10 +++ exited with 0 +++\n";
        let found = counts(text);
        assert_eq!((found.calls, found.clones), (5, 1));
    }
}
