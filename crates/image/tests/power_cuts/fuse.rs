//! A disk that logs what is written to it: a FUSE file system of one regular file, which is the backing file of a loop
//! device. Each write of the device arrives as FUSE_WRITE (FOPEN_DIRECT_IO: there is no page cache in between), each
//! cache flush as FUSE_FSYNC. Both are logged before the reply.
//!
//! The server is its own process with one thread, in a mount namespace that is created before the file system is
//! mounted. It never waits for itself: neither while it serves, nor when the kernel unmounts everything because the
//! test was killed. It ends when the file system is unmounted.

use std::{
    collections::VecDeque,
    ffi::CString,
    fs::{self, File},
    io::Write,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};
use testbed::{Namespaces, holds_within};

use crate::write_log::{Header, Kind};

/// Directory with the files of a server's disk.
const SERVE: &str = "IMAGE_POWER_CUTS_SERVE";

// linux/fuse.h
const HEADER_IN: usize = 40;
const WRITE_IN: usize = 40;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
/// FORGET, INTERRUPT, BATCH_FORGET
const UNANSWERED: [u32; 3] = [2, 36, 42];
const FOPEN_DIRECT_IO: u64 = 1;
/// FUSE_BIG_WRITES, FUSE_MAX_PAGES
const INIT_FLAGS: u32 = 1 << 5 | 1 << 22;
const MAX_WRITE: u32 = 1 << 20;
const FOREVER: u64 = 1 << 30;

/// A disk with a log, in its own directory: `plain` has its contents, `log` the writes, `disk` is the mounted file.
pub(crate) struct LoggedDisk {
    dir: PathBuf,
    server: Child,
}

impl LoggedDisk {
    /// Serves the existing file `plain` as `disk`.
    pub(crate) fn serve(dir: &Path) -> Self {
        File::create(dir.join("log")).unwrap();
        File::create(dir.join("disk")).unwrap();
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fuse = rustix::fs::open("/dev/fuse", flags, Mode::empty()).expect("/dev/fuse is needed");
        let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", fuse.as_raw_fd());
        let mut command = Namespaces::MOUNT.this_test("fuse::server");
        command.env(SERVE, dir);
        let ready = dir.join("ready");
        let server = command.stdin(fuse.try_clone().unwrap()).stdout(Stdio::null()).spawn().unwrap();
        let mut disk = Self { dir: dir.to_owned(), server };
        disk.wait_for(|| ready.exists());
        let options = CString::new(options).unwrap();
        rustix::mount::mount("power-cuts", disk.file(), "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        drop(fuse);
        let size = fs::metadata(dir.join("plain")).unwrap().len();
        disk.wait_for(|| fs::metadata(dir.join("disk")).is_ok_and(|file| file.len() == size));
        disk
    }

    fn wait_for(&mut self, condition: impl Fn() -> bool) {
        let reached = holds_within(Duration::from_secs(10), || {
            assert!(self.server.try_wait().unwrap().is_none(), "the FUSE server ended");
            condition()
        });
        assert!(reached, "the FUSE server does not respond");
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl Drop for LoggedDisk {
    fn drop(&mut self) {
        holds_within(Duration::from_secs(5), || rustix::mount::unmount(self.file(), UnmountFlags::empty()).is_ok());
        // The connection ends with the server; remaining users of the disk get errors.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = rustix::mount::unmount(self.file(), UnmountFlags::DETACH);
    }
}

/// Not a test: the server.
#[test]
fn server() {
    let Some(dir) = std::env::var_os(SERVE).map(PathBuf::from) else { return };
    let fuse = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let plain = File::options().read(true).write(true).open(dir.join("plain")).unwrap();
    let log = File::options().append(true).open(dir.join("log")).unwrap();
    File::create(dir.join("ready")).unwrap();
    Server { fuse, plain, log, logged: 0, answered: 0, requests: VecDeque::new() }.run();
}

struct Request {
    bytes: Vec<u8>,
    /// Entries of the log whose requests were answered before this one was read.
    answered: u64,
}

impl Request {
    fn body(&self) -> &[u8] {
        &self.bytes[HEADER_IN..]
    }
}

struct Server {
    fuse: OwnedFd,
    plain: File,
    log: File,
    /// Entries of the log, and the number of them that were answered.
    logged: u64,
    answered: u64,
    requests: VecDeque<Request>,
}

impl Server {
    fn run(mut self) {
        let mut buffer = vec![0; HEADER_IN + WRITE_IN + MAX_WRITE as usize];
        while self.receive(&mut buffer) {
            let Some(request) = self.requests.pop_front() else {
                let _ = poll(&mut [PollFd::new(&self.fuse, PollFlags::IN)], None);
                continue;
            };
            let reply = self.reply(&request);
            // Requests that arrive before this reply do not depend on it.
            if !self.receive(&mut buffer) {
                return;
            }
            // The reply to an interrupted request is refused, because no process waits for it.
            let _ = reply.map(|reply| rustix::io::write(&self.fuse, &reply));
            self.answered = self.logged;
        }
    }

    /// Reads all pending requests without waiting. Returns whether the file system is still mounted.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            match rustix::io::read(&self.fuse, &mut *buffer) {
                Ok(length) => {
                    let request = Request { bytes: buffer[..length].to_vec(), answered: self.answered };
                    self.requests.push_back(request);
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::NODEV) => return false,
                // Not mounted yet.
                Err(Errno::PERM) => std::thread::sleep(Duration::from_millis(2)),
                // The request was withdrawn.
                Err(errno) => assert_eq!(errno, Errno::NOENT),
            }
        }
    }

    fn reply(&mut self, request: &Request) -> Option<Vec<u8>> {
        let (opcode, unique) = (u32_at(&request.bytes, 4), u64_at(&request.bytes, 8));
        if UNANSWERED.contains(&opcode) {
            return None;
        }
        let reply = self.execute(opcode, request);
        let (error, body) = match &reply {
            Ok(body) => (0, body.as_slice()),
            Err(errno) => (-errno.raw_os_error(), &[][..]),
        };
        let mut bytes = Vec::with_capacity(16 + body.len());
        bytes.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        bytes.extend(error.to_ne_bytes());
        bytes.extend(unique.to_ne_bytes());
        bytes.extend(body);
        Some(bytes)
    }

    fn execute(&mut self, opcode: u32, request: &Request) -> Result<Vec<u8>, Errno> {
        let body = request.body();
        match opcode {
            INIT => Ok(init(body)),
            GETATTR => Ok(self.attributes()),
            OPEN => Ok([0, FOPEN_DIRECT_IO].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect()),
            READ => self.read(u64_at(body, 8), u32_at(body, 16)),
            WRITE => self.write(u64_at(body, 8), &body[WRITE_IN..]),
            FSYNC => self.flush(request.answered),
            FLUSH | RELEASE => Ok(Vec::new()),
            // Also FALLOCATE: the loop device discards nothing and writes its zeros.
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self) -> Vec<u8> {
        let size = self.plain.metadata().unwrap().len();
        // fuse_attr_out: how long it is valid; fuse_attr: inode, size, blocks, three times
        let words = [FOREVER, 0, 1, size, size / 512, 0, 0, 0];
        // nanoseconds of the times, mode, links, owner, group, device, block size, flags
        let rest: [u32; 10] = [0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0];
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        words.chain(rest.iter().flat_map(|word| word.to_ne_bytes())).collect()
    }

    fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length as usize];
        let read = self.plain.read_at(&mut bytes, offset).map_err(|_| Errno::IO)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let length = data.len() as u64;
        self.plain.write_all_at(data, offset).map_err(|_| Errno::IO)?;
        self.log(&Header { kind: Kind::Write, offset, length }, data)?;
        Ok(length.to_ne_bytes().to_vec())
    }

    fn flush(&mut self, answered: u64) -> Result<Vec<u8>, Errno> {
        self.log(&Header { kind: Kind::Flush, offset: answered, length: 0 }, &[])?;
        Ok(Vec::new())
    }

    fn log(&mut self, header: &Header, data: &[u8]) -> Result<(), Errno> {
        self.logged += 1;
        self.log.write_all(&header.bytes()).and_then(|()| self.log.write_all(data)).map_err(|_| Errno::IO)
    }
}

/// `fuse_init_out`
fn init(request: &[u8]) -> Vec<u8> {
    let (major, minor, readahead) = (7, 31, u32_at(request, 8));
    let queue = 12 | 9 << 16;
    let pages = MAX_WRITE / 4096;
    let words = [major, minor, readahead, INIT_FLAGS, queue, MAX_WRITE, 1, pages];
    words.iter().chain(&[0; 8]).flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}
