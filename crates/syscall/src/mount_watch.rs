//! Notifications of mounts that appear in and disappear from a mount namespace, and where a mount is.
//!
//! Source: fanotify_init(2), fanotify_mark(2) (`FAN_REPORT_MNT`, Linux 6.15), statmount(2) (Linux 6.8).

use std::{ffi::OsString, fs::File, io, os::unix::ffi::OsStringExt, path::PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const FAN_REPORT_MNT: libc::c_uint = 0x4000;
const FAN_MARK_MNTNS: libc::c_uint = 0x110;
const FAN_MNT_ATTACH: u64 = 0x0100_0000;
const FAN_MNT_DETACH: u64 = 0x0200_0000;
const FAN_EVENT_INFO_TYPE_MNT: u8 = 7;

/// Size of `struct fanotify_event_metadata`.
const METADATA: usize = 24;
/// Size of `struct fanotify_event_info_mnt`.
const INFORMATION: usize = 16;
/// Events are read in pieces of this many bytes; one event takes 40.
const BUFFER: usize = 4096;

/// What happened to a mount, by its unique id, which is not reused until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountEvent {
    /// It was attached.
    Attached(u64),
    /// It was detached.
    Detached(u64),
    /// Events were lost, because the queue (16384 events) was full.
    Overflow,
}

/// A queue of the events of one mount namespace.
#[derive(Debug)]
pub struct MountWatch {
    queue: OwnedFd,
}

impl MountWatch {
    /// Watches the mount namespace of the calling thread.
    ///
    /// # Errors
    /// `EINVAL` before Linux 6.15, `EPERM` without `CAP_SYS_ADMIN` in the user namespace that owns the mount namespace,
    /// `EMFILE` at the limit of fanotify groups.
    pub fn of_this_thread() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | FAN_REPORT_MNT;
        // SAFETY: the call takes two numbers.
        let fd = unsafe { libc::fanotify_init(flags, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor, which nothing else owns.
        let queue = unsafe { OwnedFd::from_raw_fd(fd) };
        let namespace = File::open("/proc/thread-self/ns/mnt")?;
        let mask = FAN_MNT_ATTACH | FAN_MNT_DETACH;
        let mark = libc::FAN_MARK_ADD | FAN_MARK_MNTNS;
        // SAFETY: both descriptors are open for the call; with a null path the kernel uses the descriptor alone.
        let result =
            unsafe { libc::fanotify_mark(queue.as_raw_fd(), mark, mask, namespace.as_raw_fd(), std::ptr::null()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { queue }) }
    }

    /// Returns the next events; none if there are none yet.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self) -> io::Result<Vec<MountEvent>> {
        let mut buffer = [0; BUFFER];
        match rustix::io::read(&self.queue, &mut buffer) {
            Ok(length) => Ok(parse(&buffer[..length])),
            Err(rustix::io::Errno::AGAIN) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for MountWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn parse(mut bytes: &[u8]) -> Vec<MountEvent> {
    let mut events = Vec::new();
    while bytes.len() >= METADATA {
        let length = number(bytes, 0, 4) as usize;
        if length < METADATA || length > bytes.len() {
            break;
        }
        let (event, rest) = bytes.split_at(length);
        let mask = number(event, 8, 8);
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            events.push(MountEvent::Overflow);
        } else if let Some(mount) = mount_id(event) {
            // One event may report both, if they were merged: the mount is gone.
            let detached = mask & FAN_MNT_DETACH != 0;
            events.push(if detached { MountEvent::Detached(mount) } else { MountEvent::Attached(mount) });
        }
        bytes = rest;
    }
    events
}

fn mount_id(event: &[u8]) -> Option<u64> {
    let header = number(event, 6, 2) as usize;
    let information = event.get(header..)?;
    let is_mount = information.len() >= INFORMATION && information[0] == FAN_EVENT_INFO_TYPE_MNT;
    is_mount.then(|| number(information, 8, 8))
}

/// Returns a number of this many bytes, in the byte order of the machine.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut whole = [0; 8];
    let start = if cfg!(target_endian = "little") { 0 } else { 8 - size };
    whole[start..start + size].copy_from_slice(&bytes[at..at + size]);
    u64::from_ne_bytes(whole)
}

/// Returns where a mount of the calling thread's mount namespace is mounted, as an absolute path below its root.
///
/// # Errors
/// `ENOENT` if the mount does not exist (anymore), `ENOSYS` before Linux 6.8, `EOVERFLOW` if the path is longer than 4096
/// bytes.
pub fn mount_point(mount: u64) -> io::Result<PathBuf> {
    /// The number of statmount(2), the same on all architectures.
    const SYS_STATMOUNT: libc::c_long = 457;
    const STATMOUNT_MNT_POINT: u64 = 0x10;
    /// `struct mnt_id_req`.
    #[repr(C)]
    struct Request {
        size: u32,
        spare: u32,
        mount: u64,
        parameter: u64,
    }
    /// Size of `struct statmount` before its strings.
    const FIXED: usize = 512;
    /// Offset of the field `mnt_point`, which is an offset into the strings.
    const MNT_POINT: usize = 108;
    let request = Request { size: size_of::<Request>() as u32, spare: 0, mount, parameter: STATMOUNT_MNT_POINT };
    let mut answer = [0u64; (FIXED + 4096) / 8];
    // SAFETY: the kernel reads `size` bytes of the request and writes at most the given number of bytes to `answer`, which
    // is aligned as its structure; both outlive the call.
    let result =
        unsafe { libc::syscall(SYS_STATMOUNT, &raw const request, answer.as_mut_ptr(), size_of_val(&answer), 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes: Vec<u8> = answer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let start = FIXED + number(&bytes, MNT_POINT, 4) as usize;
    let text = bytes.get(start..).and_then(|rest| rest.split(|byte| *byte == 0).next());
    let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(PathBuf::from(OsString::from_vec(text.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, mount: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(40u32.to_ne_bytes());
        bytes.extend([3, 0]);
        bytes.extend(24u16.to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([FAN_EVENT_INFO_TYPE_MNT, 0, 16, 0, 0, 0, 0, 0]);
        bytes.extend(mount.to_ne_bytes());
        bytes
    }

    #[test]
    fn events_are_parsed_and_truncated_ones_are_not() {
        let mut bytes = event(FAN_MNT_ATTACH, 7);
        bytes.extend(event(FAN_MNT_DETACH, 8));
        bytes.extend(event(libc::FAN_Q_OVERFLOW, 0));
        let expected = [MountEvent::Attached(7), MountEvent::Detached(8), MountEvent::Overflow];
        assert_eq!(parse(&bytes), expected);
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).len() <= length / 40, "{length}");
        }
        let mut short = event(FAN_MNT_ATTACH, 7);
        short[0] = 23;
        assert_eq!(parse(&short), []);
    }
}
