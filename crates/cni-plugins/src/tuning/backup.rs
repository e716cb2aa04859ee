//! Attributes that an interface had before, in a file of the format of the reference plugin.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rtnl::{
    Change, Link, flags,
    netlink::{Batch, Socket},
};
use serde::{Deserialize, Serialize};

use super::Options;
use crate::{Error, arguments};

/// Attributes before the change; `None` and zero for those that were not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Backup {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(default, rename = "txQLen", skip_serializing_if = "Option::is_none")]
    transmit_queue: Option<u32>,
}

/// Returns the path of the backup of an interface.
pub(super) fn path(directory: &Path, container: &str, interface: &str) -> PathBuf {
    directory.join(format!("{container}_{interface}.json"))
}

/// Removes a backup; succeeds if it does not exist.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::path("remove", path, e)),
        _ => Ok(()),
    }
}

impl Backup {
    /// Notes what the options change.
    pub(super) fn of(link: &Link, options: &Options) -> Self {
        Self {
            mac: if options.mac.is_empty() { String::new() } else { link.mac_text() },
            promisc: options.is_promiscuous.then_some(link.promiscuity > 0),
            mtu: (options.mtu > 0).then_some(link.mtu),
            allmulti: options.gets_all_multicast.map(|_| link.flags & flags::ALL_MULTICAST != 0),
            transmit_queue: options.transmit_queue.map(|_| link.transmit_queue),
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let fail = |e| Error::path("write", path, e);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(fail)?;
        }
        let text = serde_json::to_vec(self).map_err(|e| fail(io::Error::other(e)))?;
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(&text)).map_err(fail)
    }

    /// Reads a backup; `None` if it does not exist or is not valid.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, Error> {
        match fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::path("read", path, e)),
        }
    }

    /// Restores the attributes.
    pub(super) fn restore(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        let mac = (!self.mac.is_empty()).then(|| arguments::mac(&self.mac)).transpose()?;
        let mut change = Change { mac: mac.as_ref().map(|mac| &mac[..]), ..Change::default() };
        change.mtu = self.mtu;
        change.transmit_queue = self.transmit_queue;
        for (flag, was) in [(flags::PROMISCUOUS, self.promisc), (flags::ALL_MULTICAST, self.allmulti)] {
            if let Some(was) = was {
                change.mask |= flag;
                change.flags |= if was { flag } else { 0 };
            }
        }
        let mut batch = Batch::new();
        change.of(&mut batch, link.index);
        socket.request(batch).map_err(|e| Error::kernel("restore", format!("{} in the pod", link.name), e))
    }
}
