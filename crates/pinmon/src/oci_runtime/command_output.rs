//! What a command writes to standard output or standard error, in a memfd of limited size: a program that the command
//! leaves running may keep the file and write for as long as it likes.

use std::{fs::File, io};

use monitor_api::RuntimeCommand;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
};

use super::error_log::read_shared;

/// Maximum number of bytes.
const SIZE: u64 = RuntimeCommand::OUTPUT_MAX as u64;

/// One output of a command.
pub(super) struct CommandOutput(OwnedFd);

impl CommandOutput {
    pub(super) fn create() -> io::Result<Self> {
        let file = memfd_create(c"command-output", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self(file))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns what was written so far, without zeros at its end: those are what was not written.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE as usize];
        let length = read_shared(&File::from(self.0), 0, &mut bytes).unwrap_or(0);
        bytes.truncate(bytes[..length].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn output_is_returned_up_to_its_maximum_size() {
        let output = CommandOutput::create().expect("memfd");
        let mut writer = File::from(output.file().try_clone_to_owned().expect("dup"));
        writer.write_all(b"address").expect("write");
        assert_eq!(output.into_bytes(), b"address");
        let output = CommandOutput::create().expect("memfd");
        let mut writer = File::from(output.file().try_clone_to_owned().expect("dup"));
        let written = writer.write_all(&vec![b'x'; RuntimeCommand::OUTPUT_MAX + 1]);
        assert_eq!(written.expect_err("too much").raw_os_error(), Some(libc::EPERM));
        assert!(output.into_bytes().len() <= RuntimeCommand::OUTPUT_MAX);
    }
}
