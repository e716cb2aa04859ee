//! Files of procfs, whose size nobody knows before: read in as few calls as there can be.

use std::io;

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

/// Bytes asked for at a time; what a read of procfs gives is at most about this much.
const CHUNK: usize = 4096;
/// Most bytes that are read.
const MAX: usize = 64 << 20;

/// The whole file.
///
/// # Errors
/// The kernel's, `EFBIG` beyond 64 MiB; `InvalidData` where it is no UTF-8.
pub fn read(path: &str) -> io::Result<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut data = vec![0; CHUNK];
    let mut filled = 0;
    loop {
        match rustix::io::read(&file, &mut data[filled..]) {
            Err(Errno::INTR) => continue,
            Ok(0) => break,
            result => filled += result?,
        }
        if data.len() - filled < CHUNK / 2 {
            if filled > MAX {
                return Err(Errno::FBIG.into());
            }
            data.resize(data.len() * 2, 0);
        }
    }
    data.truncate(filled);
    String::from_utf8(data).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_what_others_read() {
        let ours = super::read("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(ours, std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo"));
        assert_eq!(super::read("/proc/nothing").expect_err("absent").kind(), std::io::ErrorKind::NotFound);
    }
}
