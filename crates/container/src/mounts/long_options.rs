//! File systems with an option that is too long for fsconfig(2): its strings are limited to 255 bytes, and the list of
//! an overlay's lower directories is often longer. mount(2) accepts a page of options, but attaches the mount. So a
//! separate process calls it in a private mount namespace, and hands over a detached clone.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::CWD,
    io::{Errno, IoSlice, IoSliceMut},
    mount::{MountAttrFlags, MountFlags, MountPropagationFlags, OpenTreeFlags, mount, mount_change, open_tree},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
    param::page_size,
    process::{WaitId, WaitIdOptions, waitid},
    thread::UnshareFlags,
};
use syscall::{clone::Clone3, mount_attributes::MountAttributes};

use crate::{Error, error::During, mount_tree::SCRATCH, mounts::option::Options, spec_string::c_string, sync};

/// Maximum length in bytes of a string of fsconfig(2), without its NUL.
const STRING_MAX: usize = 255;

/// Whether the source or an option is too long for fsconfig(2).
pub(super) fn are_long(source: Option<&CStr>, options: &Options) -> bool {
    let long = |(_, value): &(String, Option<String>)| value.as_ref().is_some_and(|value| value.len() > STRING_MAX);
    source.is_some_and(|source| source.to_bytes().len() > STRING_MAX) || options.data.iter().any(long)
}

/// Makes a new instance with mount(2) and returns a detached mount of it.
pub(super) fn make(kind: &CStr, source: Option<&CStr>, options: &Options) -> Result<OwnedFd, Error> {
    let strings: Vec<String> = options.data.iter().map(option_string).collect();
    let data = c_string("mounts: options", &strings.join(","))?;
    // mount(2) truncates data longer than a page without an error.
    let (length, maximum) = (data.to_bytes().len(), page_size() - 1);
    if length > maximum {
        return Err(Error::invalid(format!(
            "mount a new {kind:?}: its options have {length} bytes, more than the {maximum} that mount(2) accepts"
        )));
    }
    let flags = superblock_flags(options);
    let (ours, child_socket) = sync::pair()?;
    let private = Clone3 { namespaces: Some(UnshareFlags::NEWNS), cgroup: None };
    let child = private.fork(|| {
        let send_error = match mount_and_clone(kind, source, flags, &data) {
            Ok(tree) => send(&child_socket, &[], Some(&tree)).err(),
            Err(errno) => send(&child_socket, &errno.raw_os_error().to_ne_bytes(), None).err(),
        };
        i32::from(send_error.is_some())
    });
    let child = child.during(|| "clone a process that mounts a file system with long options")?;
    drop(child_socket);
    let received = receive(&ours);
    // Reap the child whether or not it succeeded.
    let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    let tree = received.during(|| format!("mount a new {kind:?} with {data:?}"))?;
    let attributes = MountAttributes { set: options.attributes.set, ..MountAttributes::default() };
    if !attributes.is_empty() {
        let times = MountAttrFlags::MOUNT_ATTR__ATIME;
        MountAttributes { clear: times, ..attributes }.apply(&tree, false).during(|| format!("set {attributes:?}"))?;
    }
    Ok(tree)
}

fn option_string((key, value): &(String, Option<String>)) -> String {
    match value {
        Some(value) => format!("{key}={value}"),
        None => key.clone(),
    }
}

/// Returns the superblock flags, which fsconfig(2) would take as separate options.
fn superblock_flags(options: &Options) -> MountFlags {
    let read_only = options.attributes.set.contains(MountAttrFlags::MOUNT_ATTR_RDONLY);
    if read_only { MountFlags::RDONLY } else { MountFlags::empty() }
}

fn mount_and_clone(kind: &CStr, source: Option<&CStr>, flags: MountFlags, data: &CString) -> Result<OwnedFd, Errno> {
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let source = source.unwrap_or(c"none");
    mount(source, SCRATCH, kind, flags, Some(data.as_c_str()))?;
    open_tree(CWD, SCRATCH, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

fn send(socket: &OwnedFd, data: &[u8], tree: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = tree.map(AsFd::as_fd);
    if !fds.as_slice().is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds.as_slice()));
    }
    let marked = [&[0][..], data].concat();
    sendmsg(socket, &[IoSlice::new(&marked)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Receives the mount, or the error of mount(2).
fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut data = [0u8; 5];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut data)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    match (fds.next(), &data[..length]) {
        (Some(tree), _) => Ok(tree),
        (None, [0, a, b, c, d]) => Err(Errno::from_raw_os_error(i32::from_ne_bytes([*a, *b, *c, *d]))),
        _ => Err(Errno::CHILD),
    }
}
