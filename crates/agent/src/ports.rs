//! The virtio-serial ports, by the names that the virtual machine monitor gave them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, open},
    net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, netlink::SocketAddrNetlink, recv, socket_with,
    },
};

use crate::{clock, during};

/// Where the kernel lists ports. The name of an entry is that of its device; its file `name` is what is looked for.
const CLASS: &str = "/sys/class/virtio-ports";
const DEVICES: &str = "/dev";
/// Multicast group of the kernel's own messages (`uevent_sock`, `lib/kobject_uevent.c`).
const KERNEL_GROUP: u32 = 1;
/// How long after its appearance the other end of a port may be reported as closed although it is open: the kernel gets
/// to know name and state in two messages, and a busy node delays the second one.
const OPENING: Duration = Duration::from_secs(2);

/// The ports, and the socket that reports changes of them.
pub(crate) struct Ports {
    uevents: OwnedFd,
    /// When a name was first seen, of ports that were not opened yet.
    seen: BTreeMap<String, Duration>,
    /// Names of connections that were opened. A port has one connection.
    connected: BTreeSet<String>,
}

impl Ports {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let kind = Some(netlink::KOBJECT_UEVENT);
        let uevents = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, kind)
            .map_err(during("open a socket for events of devices"))?;
        bind(&uevents, &SocketAddrNetlink::new(0, KERNEL_GROUP)).map_err(during("receive events of devices"))?;
        Ok(Self { uevents, seen: BTreeMap::new(), connected: BTreeSet::new() })
    }

    /// Readable when ports may have changed.
    pub(crate) fn changes(&self) -> BorrowedFd<'_> {
        self.uevents.as_fd()
    }

    /// Reads what was reported. Messages that were lost are reported as an error, and do not matter: ports are looked for
    /// by their files.
    pub(crate) fn read_changes(&self) {
        let mut buffer = [0; 4096];
        while recv(&self.uevents, &mut buffer, RecvFlags::DONTWAIT).is_ok_and(|(n, _)| n > 0) {}
    }

    /// Opens the ports of connections that were not opened yet.
    pub(crate) fn new_connections(&mut self) -> Vec<OwnedFd> {
        let ports = list();
        self.connected.retain(|name| ports.contains_key(name));
        self.seen.retain(|name, _| ports.contains_key(name));
        let mut connections = Vec::new();
        for (name, device) in ports {
            if name.starts_with(agent_api::CONNECTION_PREFIX)
                && !self.connected.contains(&name)
                && let Some(port) = self.open_device(&name, &device)
            {
                self.connected.insert(name);
                connections.push(port);
            }
        }
        connections
    }

    /// Whether a port exists that is not open yet at its other end.
    pub(crate) fn is_opening(&self) -> bool {
        let now = clock::monotonic();
        self.seen.values().any(|first_seen| now.saturating_sub(*first_seen) < OPENING)
    }

    /// Opens the port with this name; `None` if it does not exist yet. A port is open once at a time.
    pub(crate) fn open(&mut self, name: &str) -> Option<OwnedFd> {
        let device = list().remove(name)?;
        self.open_device(name, &device)
    }

    fn open_device(&mut self, name: &str, device: &Path) -> Option<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let first_seen = *self.seen.entry(name.to_owned()).or_insert_with(clock::monotonic);
        let port = open(device, flags, Mode::empty()).ok()?;
        let may_be_opening = clock::monotonic().saturating_sub(first_seen) < OPENING;
        if may_be_opening && is_closed_by_host(&port) {
            return None;
        }
        self.seen.remove(name);
        Some(port)
    }
}

/// Whether the other end is closed, and everything was read.
fn is_closed_by_host(port: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(port, PollFlags::IN)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().contains(PollFlags::HUP) && !fds[0].revents().contains(PollFlags::IN)
}

/// Returns the names of all ports.
pub(crate) fn names() -> BTreeSet<String> {
    list().into_keys().collect()
}

/// Returns the devices of all ports by name.
fn list() -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        Some((name.trim_end().to_owned(), Path::new(DEVICES).join(entry.file_name())))
    });
    named.collect()
}
