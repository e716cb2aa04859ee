//! `linux.netDevices`: network devices that are moved from the runtime's network namespace to the container's.
//!
//! The child waits in its namespaces while the runtime moves them, because only the runtime has privileges in both
//! network namespaces. Moving a device removes its addresses, so its permanent addresses of global scope are added
//! again, and it is set up. When the container's namespace ends, the kernel moves physical devices back to the initial
//! one, and deletes virtual devices.

use std::collections::{BTreeMap, BTreeSet};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::Pid,
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};

use crate::{
    Error,
    error::During,
    namespaces::Namespaces,
    route_netlink::{GET_ADDRESS, GET_LINK, NEW_ADDRESS, NEW_LINK, Request, Socket, attributes, u32_at},
};

/// Maximum length of a device name in bytes (`IFNAMSIZ` without the NUL).
const NAME_MAX: usize = 15;
/// Size of `ifinfomsg`.
const LINK: usize = 16;
/// Size of `ifaddrmsg`.
const ADDRESS: usize = 8;
const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_PID: u16 = 19;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u32 = 0x80;

/// The network devices to move.
#[derive(Debug)]
pub(crate) struct NetDevices(Vec<NetDevice>);

#[derive(Debug)]
struct NetDevice {
    name: String,
    /// Its name in the container.
    inside: String,
}

impl NetDevices {
    /// Parses the devices; `None`: the spec lists no devices.
    pub(crate) fn parse(
        devices: &BTreeMap<String, oci::NetDevice>,
        namespaces: &Namespaces,
    ) -> Result<Option<Self>, Error> {
        if devices.is_empty() {
            return Ok(None);
        }
        if !namespaces.has(oci::NamespaceType::Network) {
            return Err(Error::invalid("linux.netDevices: the container has no network namespace of its own"));
        }
        let mut inside = BTreeSet::new();
        let device = |(name, device): (&String, &oci::NetDevice)| {
            let new = device.name.as_ref().filter(|new| !new.is_empty()).unwrap_or(name);
            check_name(name)?;
            check_name(new)?;
            if !inside.insert(new.clone()) {
                return Err(Error::invalid(format!("linux.netDevices: two devices would be named {new:?} inside")));
            }
            Ok(NetDevice { name: name.clone(), inside: new.clone() })
        };
        devices.iter().map(device).collect::<Result<_, _>>().map(Self).map(Some)
    }

    /// Moves the devices to the network namespace of a waiting child. Runs in the runtime.
    pub(crate) fn move_to(&self, pid: Pid, pidfd: &OwnedFd) -> Result<(), Error> {
        let runtime = Socket::open().during(|| "open a netlink socket")?;
        let container = socket_in(pidfd)?;
        self.0.iter().try_for_each(|device| {
            device
                .move_to(pid, &runtime, &container)
                .map_err(|error| error.within(format!("move the network device {:?} into the container", device.name)))
        })
    }
}

impl NetDevice {
    fn move_to(&self, pid: Pid, runtime: &Socket, container: &Socket) -> Result<(), Error> {
        let index = find(runtime, &self.name).during(|| "find it in the runtime's network namespace")?;
        // The kernel moves a device before it renames it: if the name is taken, the device would stay in the
        // container's namespace, and be lost with it.
        if find(container, &self.inside).is_ok() {
            return Err(Error::system(format!("name it {:?} inside", self.inside), Errno::EXIST));
        }
        let addresses = addresses(runtime, index).during(|| "list its addresses")?;
        let request = Request::new(NEW_LINK, &link(index, 0))
            .attribute(IFLA_NET_NS_PID, &pid.as_raw_pid().to_ne_bytes())
            .attribute(IFLA_IFNAME, &c_name(&self.inside));
        runtime.request(request).during(|| format!("move it to process {pid} as {:?}", self.inside))?;
        let index = find(container, &self.inside).during(|| format!("find it inside as {:?}", self.inside))?;
        for address in addresses {
            container.request(address.request(index)).during(|| format!("add the address {address}"))?;
        }
        container.request(Request::new(NEW_LINK, &link(index, IFF_UP))).during(|| "set it up")?;
        Ok(())
    }
}

/// Opens a netlink socket in the network namespace of another process. The caller must be single-threaded, and is in
/// its own namespace again afterwards.
fn socket_in(pidfd: &OwnedFd) -> Result<Socket, Error> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let original = openat(CWD, c"/proc/self/ns/net", flags, Mode::empty()).during(|| "open /proc/self/ns/net")?;
    move_into_thread_name_spaces(pidfd.as_fd(), ThreadNameSpaceType::NETWORK)
        .during(|| "enter the container's network namespace")?;
    let socket = Socket::open();
    move_into_thread_name_spaces(original.as_fd(), ThreadNameSpaceType::NETWORK)
        .during(|| "return from the container's network namespace")?;
    socket.during(|| "open a netlink socket in the container's network namespace")
}

/// Builds an `ifinfomsg`.
fn link(index: u32, flags: u32) -> [u8; LINK] {
    let mut body = [0; LINK];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}

fn find(socket: &Socket, name: &str) -> Result<u32, Errno> {
    let request = Request::new(GET_LINK, &link(0, 0)).attribute(IFLA_IFNAME, &c_name(name));
    socket.request(request)?.first().and_then(|reply| u32_at(reply, 4)).ok_or(Errno::NODEV)
}

/// An address that is added to the device again.
#[derive(Debug)]
struct Address {
    family: u8,
    length: u8,
    address: Vec<u8>,
    /// The device's own address, if `address` is that of a peer.
    local: Option<Vec<u8>>,
    broadcast: Option<Vec<u8>>,
}

fn addresses(socket: &Socket, index: u32) -> Result<Vec<Address>, Errno> {
    let replies = socket.request(Request::new(GET_ADDRESS, &[0; ADDRESS]))?;
    Ok(replies.iter().filter(|reply| u32_at(reply, 4) == Some(index)).filter_map(|reply| permanent(reply)).collect())
}

/// Parses an address; `None`: it is not permanent or not of global scope.
fn permanent(reply: &[u8]) -> Option<Address> {
    let [family, length, short_flags, scope, ..] = *reply else { return None };
    let find =
        |attribute| attributes(reply, ADDRESS).find(|(kind, _)| *kind == attribute).map(|(_, value)| value.to_vec());
    let flags = find(IFA_FLAGS).and_then(|value| u32_at(&value, 0)).unwrap_or(u32::from(short_flags));
    if scope != 0 || flags & IFA_F_PERMANENT == 0 {
        return None;
    }
    Some(Address {
        family,
        length,
        address: find(IFA_ADDRESS)?,
        local: find(IFA_LOCAL),
        broadcast: find(IFA_BROADCAST),
    })
}

impl Address {
    fn request(&self, index: u32) -> Request {
        let mut body = [self.family, self.length, 0, 0, 0, 0, 0, 0];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let request = Request::new(NEW_ADDRESS, &body).attribute(IFA_ADDRESS, &self.address);
        let request = match &self.local {
            Some(local) => request.attribute(IFA_LOCAL, local),
            None => request,
        };
        match &self.broadcast {
            Some(broadcast) => request.attribute(IFA_BROADCAST, broadcast),
            None => request,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.local.as_ref().unwrap_or(&self.address);
        if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
            return write!(f, "{}/{}", std::net::Ipv4Addr::from(four), self.length);
        }
        match <[u8; 16]>::try_from(bytes.as_slice()) {
            Ok(sixteen) => write!(f, "{}/{}", std::net::Ipv6Addr::from(sixteen), self.length),
            Err(_) => write!(f, "{bytes:02x?}/{}", self.length),
        }
    }
}

fn c_name(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Checks a name like the kernel does (`dev_valid_name`). `%` is refused too, because the kernel would treat the name
/// as a pattern.
fn check_name(name: &str) -> Result<(), Error> {
    let invalid = |byte: u8| byte == b'/' || byte == b':' || byte == b'%' || byte == 0 || byte.is_ascii_whitespace();
    if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || name.bytes().any(invalid) {
        return Err(Error::invalid(format!("linux.netDevices: {name:?} is not a valid name of a network device")));
    }
    Ok(())
}
