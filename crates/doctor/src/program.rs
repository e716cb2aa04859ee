//! Runs programs of the node, bounded in time and output.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Host;

/// Time limit of a program.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of output that are read.
const OUTPUT_MAX: usize = 4 << 20;

/// Runs a program of the machine and returns its standard output; `None` if the host is not this machine, or the program
/// fails or does not end within five seconds, in which case it is killed.
pub(crate) fn output(host: &Host, program: &Path, arguments: &[&str]) -> Option<String> {
    if !host.is_real() {
        return None;
    }
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + TIME_MAX;
    let output = child.stdout.take().and_then(|stdout| read(stdout, deadline));
    // It may have closed its output without an end of its own.
    while output.is_some() && Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(2));
    }
    // It fails if the program has ended.
    let _ = child.kill();
    let status = child.wait().ok()?;
    output.filter(|_| status.success()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads until the end of file; `None` after the deadline or too much output.
fn read(mut from: std::process::ChildStdout, deadline: Instant) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = Timespec::try_from(left).ok()?;
        let mut ready = [PollFd::new(&from, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        if ready[0].revents().is_empty() {
            continue;
        }
        match from.read(&mut buffer).ok()? {
            0 => return Some(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
        if bytes.len() > OUTPUT_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_bounded() {
        let run = |script: &str| output(&Host::real(), Path::new("/bin/sh"), &["-c", script]);
        assert_eq!(run("echo out; echo err >&2").as_deref(), Some("out\n"));
        assert_eq!(run("echo out; exit 3"), None);
        assert_eq!(run("cat /dev/zero"), None, "too much output");
        assert_eq!(run("exec >&-; exec sleep 60"), None, "no output, and no end");
        assert_eq!(output(&Host::real(), Path::new("/no/such/program"), &[]), None);
        assert_eq!(output(&Host::at("/tmp"), Path::new("/bin/true"), &[]), None, "another root");
    }
}
