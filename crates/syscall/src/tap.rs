//! Tap devices. Sources: `linux/if_tun.h`, Documentation/networking/tuntap.rst.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

const IFF_TAP: libc::c_short = 0x2;
const IFF_MULTI_QUEUE: libc::c_short = 0x100;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
const IFF_TUN_EXCL: libc::c_ushort = 0x8000;

/// Options of a tap device.
#[derive(Clone, Copy, Debug, Default)]
pub struct TapOptions {
    /// User that may open the device.
    pub owner: Option<u32>,
    /// Group that may open the device.
    pub group: Option<u32>,
    /// Whether the device may be opened several times, as queues.
    pub has_queues: bool,
    /// Whether packets have a virtio header.
    pub has_headers: bool,
}

/// Creates a tap device in the network namespace of the calling thread. It stays until its link is deleted. With an
/// SELinux context the device gets it as its label, which requires SELinux.
///
/// # Errors
/// `ENOENT` or `ENODEV` if the kernel has no tap devices, `EBUSY` or `EINVAL` if a link of this name exists.
pub fn create(name: &str, selinux_context: &str, options: &TapOptions) -> io::Result<()> {
    if selinux_context.is_empty() {
        return create_device(name, options);
    }
    // The kernel labels a device like the socket that a thread would create.
    let path = "/proc/thread-self/attr/sockcreate";
    std::fs::write(path, selinux_context)?;
    let created = create_device(name, options);
    // An empty value ends it, which needs a call of write(2): `std::fs::write` makes none without data.
    rustix::io::write(OpenOptions::new().write(true).open(path)?, b"\n")?;
    created
}

/// Creates a tap device in the network namespace of the calling thread and returns its queues, whose frames have a virtio
/// header of 10 bytes. They are nonblocking. The device is deleted when the last queue is closed.
///
/// # Errors
/// `ENOENT` or `ENODEV` if the kernel has no tap devices, `EBUSY` if a link of this name exists, `EINVAL` without queues,
/// `E2BIG` for more than the kernel's maximum (256).
pub fn create_queues(name: &str, queues: usize) -> io::Result<Vec<OwnedFd>> {
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | if queues > 1 { IFF_MULTI_QUEUE } else { 0 };
    let attach = |queue: usize| -> io::Result<OwnedFd> {
        let exclusive = if queue == 0 { IFF_TUN_EXCL.cast_signed() } else { 0 };
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        attach(&device, name, flags | exclusive)?;
        Ok(device.into())
    };
    if queues == 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    (0..queues).map(attach).collect()
}

/// Declares that frames without checksums and TCP segments larger than the MTU may be read from this queue; the header of a frame says
/// what it lacks. They can be written in any case.
///
/// # Errors
/// `EINVAL` if the kernel does not know one of the offloads.
pub fn accept_offloads(queue: &impl AsRawFd) -> io::Result<()> {
    const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
    const TUN_F_CSUM: libc::c_ulong = 0x1;
    const TUN_F_TSO4: libc::c_ulong = 0x2;
    const TUN_F_TSO6: libc::c_ulong = 0x4;
    // SAFETY: the argument is a number.
    let outcome = unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn create_device(name: &str, options: &TapOptions) -> io::Result<()> {
    const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
    const TUNSETOWNER: libc::c_ulong = 0x4004_54cc;
    const TUNSETGROUP: libc::c_ulong = 0x4004_54ce;
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut flags = IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL.cast_signed();
    if options.has_queues {
        flags |= IFF_MULTI_QUEUE;
    }
    if options.has_headers {
        flags |= IFF_VNET_HDR;
    }
    attach(&device, name, flags)?;
    let numbers = [(TUNSETOWNER, options.owner), (TUNSETGROUP, options.group), (TUNSETPERSIST, Some(1))];
    for (operation, number) in numbers {
        if let Some(number) = number {
            set(&device, operation, number)?;
        }
    }
    Ok(())
}

/// Makes an open `/dev/net/tun` a queue of a device, which is created if it does not exist.
fn attach(device: &File, name: &str, flags: libc::c_short) -> io::Result<()> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let mut request =
        libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which outlives the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, &raw mut request) };
    must_succeed(outcome)
}

fn set(device: &File, operation: libc::c_ulong, number: u32) -> io::Result<()> {
    // SAFETY: the argument of these operations is a number, not a pointer.
    must_succeed(unsafe { libc::ioctl(device.as_raw_fd(), operation, libc::c_ulong::from(number)) })
}

fn must_succeed(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
