//! Locks of files that a process holds until it ends.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::AsFd,
    fs::{FlockOperation, flock},
    io::Errno,
};

/// Takes a file for this process alone (flock(2), exclusive). A process that has it and is just ending, or a child that
/// a dead one forked and that did not execute its program yet, is waited for so long. Blocks.
///
/// # Errors
/// `EWOULDBLOCK`: somebody has it still; else the kernel's.
pub fn lock_within(file: impl AsFd, ending: Duration) -> io::Result<()> {
    const LOOKS: u32 = 100;
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if begin.elapsed() < ending => thread::sleep(ending / LOOKS),
            locked => return Ok(locked?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_is_waited_for_and_who_stays_is_not() {
        let path = std::env::temp_dir().join(format!("pinion-lock-{}", std::process::id()));
        let open = || std::fs::File::options().create(true).append(true).open(&path).expect("a file");
        let first = open();
        lock_within(&first, Duration::ZERO).expect("free");
        let refused = lock_within(open(), Duration::from_millis(50)).expect_err("taken");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        lock_within(open(), Duration::from_secs(60)).expect("waited for");
        ends.join().expect("ended");
        std::fs::remove_file(path).expect("removed");
    }
}
