//! File locks that a process holds until it exits.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::AsFd,
    fs::{FlockOperation, flock},
    io::Errno,
};

/// Locks a file exclusively (flock(2)). Waits up to `timeout` for a holder that is exiting, or for a child that a dead
/// holder forked and that has not executed its program yet. Blocks.
///
/// # Errors
/// `EWOULDBLOCK` if another process still holds the lock; else those of flock(2).
pub fn lock_with_timeout(file: impl AsFd, timeout: Duration) -> io::Result<()> {
    const ATTEMPTS: u32 = 100;
    let start = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if start.elapsed() < timeout => thread::sleep(timeout / ATTEMPTS),
            result => return Ok(result?),
        }
    }
}

/// Locks a file exclusively (flock(2)) that others lock for a short time: looks again after 0.1 ms, then less often, every
/// 10 ms in the end. Waits up to `timeout`, unlike a blocking flock(2), so a process that never unlocks it stops nobody.
///
/// # Errors
/// `EWOULDBLOCK` if it is still locked; else those of flock(2).
pub fn lock_briefly_held(file: impl AsFd, timeout: Duration) -> io::Result<()> {
    const LONGEST: Duration = Duration::from_millis(10);
    let (start, mut pause) = (Instant::now(), Duration::from_micros(100));
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if start.elapsed() < timeout => {
                thread::sleep(pause);
                pause = (pause * 2).min(LONGEST);
            }
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exiting_holder_is_waited_for() {
        let path = std::env::temp_dir().join(format!("pinion-lock-{}", std::process::id()));
        let open = || std::fs::File::options().create(true).append(true).open(&path).expect("open the file");
        let first = open();
        lock_with_timeout(&first, Duration::ZERO).expect("lock the file");
        let error = lock_with_timeout(open(), Duration::from_millis(50)).expect_err("the file is locked");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let holder = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        lock_with_timeout(open(), Duration::from_secs(60)).expect("lock the file after its release");
        holder.join().expect("join the holder");
        std::fs::remove_file(path).expect("remove the file");
    }
}
