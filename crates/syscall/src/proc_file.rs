//! Reads files of procfs, whose size is not known in advance, with as few calls as possible.

use std::io;

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

/// Bytes per read; a read from procfs returns about this much at most.
const CHUNK: usize = 4096;
/// The largest file that is read, in bytes.
const MAX: usize = 64 << 20;

/// Reads a file.
///
/// # Errors
/// Those of the kernel, `EFBIG` beyond 64 MiB; an error of kind `Other` if the file is not UTF-8.
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
    fn files_are_read_completely() {
        let text = super::read("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(text, std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo"));
        assert_eq!(super::read("/proc/nothing").expect_err("absent").kind(), std::io::ErrorKind::NotFound);
    }
}
