//! Starts a virtual machine monitor whose guest has the memory of a template. This runs on the node, in the jail and the cgroup of the
//! virtual machine monitor, before it: the kernel charges memory to the cgroup of the process that writes it first.
//!
//! ```text
//! launch SIZE -            PROGRAM ARGUMENT…    memory of SIZE bytes that is empty
//! launch SIZE TEMPLATE     PROGRAM ARGUMENT…    a copy of the file TEMPLATE, without its holes
//! ```
//! In the arguments, `{memory}` is replaced by the path of the memory, which is open in the program.

use std::{fs::File, io, os::fd::AsRawFd, os::unix::process::CommandExt, process::Command};

use rustix::{
    fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek, sendfile},
    io::Errno,
};

use crate::during;

/// The first argument.
const LAUNCH: &str = "launch";
/// Name of the memory in `/proc/PID/fd`.
const NAME: &str = "pinion-guest-memory";
/// Stands for the path of the memory.
const PLACEHOLDER: &str = "{memory}";
/// No template.
const EMPTY: &str = "-";
/// Most bytes of one sendfile(2).
const CHUNK: u64 = 8 << 20;

/// What is to be started.
pub(crate) struct Launch<'a> {
    size: u64,
    template: Option<&'a str>,
    command: &'a [String],
}

/// Returns what is to be started, if that is what this program is to do.
pub(crate) fn requested(arguments: &[String]) -> Option<Launch<'_>> {
    match arguments {
        [_, launch, size, template, command @ ..] if launch == LAUNCH && !command.is_empty() => {
            let template = Some(template.as_str()).filter(|template| *template != EMPTY);
            Some(Launch { size: size.parse().ok()?, template, command })
        }
        _ => None,
    }
}

impl Launch<'_> {
    /// Executes the program. Returns only if that failed.
    pub(crate) fn run(&self) -> io::Error {
        let memory = match self.memory() {
            Ok(memory) => memory,
            Err(error) => return error,
        };
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let words: Vec<String> = self.command.iter().map(|word| word.replace(PLACEHOLDER, &path)).collect();
        let Some((program, arguments)) = words.split_first() else { return io::ErrorKind::InvalidInput.into() };
        during(format_args!("execute {program}"))(Command::new(program).args(arguments).exec())
    }

    /// Makes the memory. The program inherits it.
    fn memory(&self) -> io::Result<File> {
        let memory = memfd_create(NAME, MemfdFlags::empty()).map_err(during("create the memory of the guest"))?;
        ftruncate(&memory, self.size).map_err(during("size the memory of the guest"))?;
        let memory = File::from(memory);
        if let Some(template) = self.template {
            let copy = File::open(template).and_then(|template| match template.metadata()?.len() == self.size {
                true => copy(&template, &memory, self.size),
                false => Err(io::Error::new(io::ErrorKind::InvalidData, "it has another size")),
            });
            copy.map_err(during(format_args!("copy the template {template}")))?;
        }
        Ok(memory)
    }
}

/// Copies what is not a hole, for the first `size` bytes.
fn copy(from: &File, to: &File, size: u64) -> io::Result<()> {
    let mut position = 0;
    while position < size {
        let begin = match seek(from, SeekFrom::Data(position)) {
            Err(Errno::NXIO) => return Ok(()),
            begin => begin?,
        };
        let end = seek(from, SeekFrom::Hole(begin))?.min(size);
        seek(to, SeekFrom::Start(begin))?;
        position = begin;
        while position < end {
            let length = usize::try_from((end - position).min(CHUNK)).unwrap_or(usize::MAX);
            // It advances the position.
            if sendfile(to, from, Some(&mut position), length)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Seek, Write},
        os::unix::fs::{FileExt, MetadataExt},
    };

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_complete_requests_are_ones() {
        let arguments = words("agent launch 4096 - qemu -m {memory}");
        let launch = requested(&arguments).expect("a request");
        assert_eq!((launch.size, launch.template, launch.command.len()), (4096, None, 3));
        for other in ["/init", "/init launch", "/init launch 4096 -", "/init launch x - qemu", "/init -q -- launch"] {
            assert!(requested(&words(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn holes_stay_holes_and_the_rest_is_equal() {
        const SIZE: u64 = 64 << 20;
        let directory = std::env::temp_dir().join(format!("pinion-launch-{}", std::process::id()));
        let template = File::create_new(&directory).expect("a file");
        template.set_len(SIZE).expect("a size");
        for at in [0, 10 << 20, SIZE - 4096] {
            template.write_all_at(&[at as u8 | 1; 4096], at).expect("written");
        }
        let path = directory.to_string_lossy().into_owned();
        let launch = Launch { size: SIZE, template: Some(&path), command: &[] };
        let memory = launch.memory();
        std::fs::remove_file(&directory).expect("removed");
        let mut memory = memory.expect("a copy");
        let metadata = memory.metadata().expect("metadata");
        assert_eq!(metadata.len(), SIZE);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        memory.rewind().expect("rewound");
        let (mut copied, mut expected) = (Vec::new(), vec![0; SIZE as usize]);
        memory.read_to_end(&mut copied).expect("read");
        for at in [0, 10 << 20, SIZE - 4096] {
            (&mut expected[at as usize..]).write_all(&[at as u8 | 1; 4096]).expect("written");
        }
        assert!(copied == expected);
        let missing = Launch { size: SIZE, template: Some("/does/not/exist"), command: &[] };
        assert!(missing.memory().expect_err("no template").to_string().contains("/does/not/exist"));
    }
}
