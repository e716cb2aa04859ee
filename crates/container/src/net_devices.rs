//! `linux.netDevices`: devices of the runtime's network namespace that become the container's.
//!
//! The child waits in its namespaces while the runtime moves them: only the runtime has rights in both namespaces. A
//! device keeps its lasting addresses of global scope, which the move takes from it, and is set up. When the
//! container's namespace ends the kernel moves hardware back to the initial one, and deletes what is virtual.

use std::collections::{BTreeMap, BTreeSet};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};

use crate::{
    Error,
    error::During,
    namespaces::Namespaces,
    route_netlink::{GET_ADDRESS, GET_LINK, NEW_ADDRESS, NEW_LINK, Request, Socket, attributes, word},
};

/// `IFNAMSIZ` less its NUL.
const NAME_MAX: usize = 15;
/// Of `ifinfomsg` and `ifaddrmsg`.
const LINK: usize = 16;
const ADDRESS: usize = 8;
const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_PID: u16 = 19;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u32 = 0x80;

/// Devices to move.
#[derive(Debug)]
pub(crate) struct NetDevices(Vec<NetDevice>);

#[derive(Debug)]
struct NetDevice {
    name: String,
    /// Its name inside.
    inside: String,
}

impl NetDevices {
    /// `None`: there are none.
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

    /// In the runtime: moves them to the network namespace of a child that waits.
    pub(crate) fn give(&self, pid: i32, pidfd: &OwnedFd) -> Result<(), Error> {
        let here = Socket::open().during(|| "open a netlink socket")?;
        let there = socket_in(pidfd)?;
        self.0.iter().try_for_each(|device| {
            device
                .give(pid, &here, &there)
                .map_err(|error| error.within(format!("move the network device {:?} into the container", device.name)))
        })
    }
}

impl NetDevice {
    fn give(&self, pid: i32, here: &Socket, there: &Socket) -> Result<(), Error> {
        let index = find(here, &self.name).during(|| "find it in the runtime's network namespace")?;
        // The kernel moves first and renames then: one whose name is taken would be inside, and lost with the
        // container.
        if find(there, &self.inside).is_ok() {
            return Err(Error::system(format!("name it {:?} inside", self.inside), Errno::EXIST));
        }
        let addresses = addresses(here, index).during(|| "ask for its addresses")?;
        let request = Request::new(NEW_LINK, &link(index, 0))
            .attribute(IFLA_NET_NS_PID, &pid.to_ne_bytes())
            .attribute(IFLA_IFNAME, &c_name(&self.inside));
        here.ask(request).during(|| format!("give it to process {pid} as {:?}", self.inside))?;
        let index = find(there, &self.inside).during(|| format!("find it inside as {:?}", self.inside))?;
        for address in addresses {
            there.ask(address.request(index)).during(|| format!("give it the address {address}"))?;
        }
        there.ask(Request::new(NEW_LINK, &link(index, IFF_UP))).during(|| "set it up")?;
        Ok(())
    }
}

/// A netlink socket in the namespace of another process; whoever calls this has one thread, and stays where it is.
fn socket_in(pidfd: &OwnedFd) -> Result<Socket, Error> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = openat(CWD, c"/proc/self/ns/net", flags, Mode::empty()).during(|| "open /proc/self/ns/net")?;
    move_into_thread_name_spaces(pidfd.as_fd(), ThreadNameSpaceType::NETWORK)
        .during(|| "enter the container's network namespace")?;
    let socket = Socket::open();
    move_into_thread_name_spaces(own.as_fd(), ThreadNameSpaceType::NETWORK)
        .during(|| "return from the container's network namespace")?;
    socket.during(|| "open a netlink socket in the container's network namespace")
}

/// `ifinfomsg`
fn link(index: u32, flags: u32) -> [u8; LINK] {
    let mut body = [0; LINK];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}

fn find(socket: &Socket, name: &str) -> Result<u32, Errno> {
    let request = Request::new(GET_LINK, &link(0, 0)).attribute(IFLA_IFNAME, &c_name(name));
    socket.ask(request)?.first().and_then(|answer| word(answer, 4)).ok_or(Errno::NODEV)
}

/// An address that the device has again.
#[derive(Debug)]
struct Address {
    family: u8,
    length: u8,
    address: Vec<u8>,
    /// Where the device's own address is another, the peer's being the former.
    local: Option<Vec<u8>>,
    broadcast: Option<Vec<u8>>,
}

fn addresses(socket: &Socket, index: u32) -> Result<Vec<Address>, Errno> {
    let answers = socket.ask(Request::new(GET_ADDRESS, &[0; ADDRESS]))?;
    Ok(answers.iter().filter(|answer| word(answer, 4) == Some(index)).filter_map(|answer| lasting(answer)).collect())
}

/// One of global scope that does not expire.
fn lasting(answer: &[u8]) -> Option<Address> {
    let [family, length, short_flags, scope, ..] = *answer else { return None };
    let find = |wanted| attributes(answer, ADDRESS).find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec());
    let flags = find(IFA_FLAGS).and_then(|value| word(&value, 0)).unwrap_or(u32::from(short_flags));
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

/// As the kernel checks it (`dev_valid_name`); a `%` would be a pattern to it.
fn check_name(name: &str) -> Result<(), Error> {
    let wrong = |byte: u8| byte == b'/' || byte == b':' || byte == b'%' || byte == 0 || byte.is_ascii_whitespace();
    if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || name.bytes().any(wrong) {
        return Err(Error::invalid(format!("linux.netDevices: {name:?} is no name of a network device")));
    }
    Ok(())
}
