//! `tuning`: sysctls and attributes of the interface that another plugin made. Attributes are restored by `DEL`, for
//! interfaces that outlive the pod.

mod allow_list;
mod backup;

use std::{collections::BTreeMap, path::PathBuf};

use backup::Backup;
use rtnl::{Change, Link, flags, netlink::Batch};
use serde::Deserialize;

use crate::{Error, PluginResult, Request, arguments, check, pod, sysctl};

/// Directory of backups unless the configuration names another one.
const DIRECTORY: &str = "/run/cni/tuning";
/// Most sysctls.
const SYSCTLS_MAX: usize = 256;

/// Parsed options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(rename = "dataDir")]
    directory: String,
    sysctl: BTreeMap<String, String>,
    mac: String,
    #[serde(rename = "promisc")]
    is_promiscuous: bool,
    mtu: u32,
    #[serde(rename = "txQLen")]
    transmit_queue: Option<u32>,
    #[serde(rename = "allmulti")]
    gets_all_multicast: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfEngine {
    sysctl: BTreeMap<String, String>,
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    #[serde(rename = "txQLen")]
    transmit_queue: Option<u32>,
    #[serde(rename = "allmulti")]
    gets_all_multicast: Option<bool>,
}

impl Options {
    fn parse(request: &Request) -> Result<Self, Error> {
        let mut options: Self = request.options()?;
        if let Some(mac) = request.mac_of_engine() {
            options.mac = mac;
        }
        if let Some(args) = request.config.get("args").and_then(|args| args.get("cni")) {
            let args: OfEngine =
                serde_json::from_value(args.clone()).map_err(|e| Error::config("args.cni", e.to_string()))?;
            options.sysctl.extend(args.sysctl);
            options.mac = args.mac.unwrap_or(options.mac);
            options.is_promiscuous = args.promisc.unwrap_or(options.is_promiscuous);
            options.mtu = args.mtu.unwrap_or(options.mtu);
            options.transmit_queue = args.transmit_queue.or(options.transmit_queue);
            options.gets_all_multicast = args.gets_all_multicast.or(options.gets_all_multicast);
        }
        if options.sysctl.len() > SYSCTLS_MAX {
            return Err(Error::config("sysctl", format!("more than {SYSCTLS_MAX} keys")));
        }
        Ok(options)
    }

    fn directory(&self) -> PathBuf {
        if self.directory.is_empty() { DIRECTORY.into() } else { self.directory.clone().into() }
    }

    /// Returns the sysctls as paths below `/proc/sys/net`, with their values.
    fn sysctls(&self, interface: &str) -> Result<Vec<(String, String)>, Error> {
        let path = |(key, value): (&String, &String)| Ok((sysctl_path(key, interface)?, value.clone()));
        self.sysctl.iter().map(path).collect()
    }

    fn change<'a>(&self, mac: Option<&'a [u8; 6]>) -> Change<'a> {
        let mut change = Change { mac: mac.map(|mac| &mac[..]), ..Change::default() };
        change.mtu = (self.mtu > 0).then_some(self.mtu);
        change.transmit_queue = self.transmit_queue;
        if self.is_promiscuous {
            (change.flags, change.mask) = (flags::PROMISCUOUS, flags::PROMISCUOUS);
        }
        if let Some(all) = self.gets_all_multicast {
            change.mask |= flags::ALL_MULTICAST;
            change.flags |= if all { flags::ALL_MULTICAST } else { 0 };
        }
        change
    }

    fn changes_link(&self) -> bool {
        let change = self.change(None);
        !self.mac.is_empty() || change.mtu.is_some() || change.transmit_queue.is_some() || change.mask != 0
    }
}

/// Returns the path of a key, in which `IFNAME` stands for the interface.
fn sysctl_path(key: &str, interface: &str) -> Result<String, Error> {
    let invalid = || Error::config("sysctl", format!("{key:?} is not a sysctl of the network"));
    let path = key.replace('.', "/").replacen("IFNAME", interface, 1);
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() < 2 || parts[0] != "net" || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(invalid());
    }
    path.strip_prefix("net/").filter(|path| !path.contains('\0')).map(str::to_owned).ok_or_else(invalid)
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options = Options::parse(request)?;
    allow_list::check(options.sysctl.keys())?;
    let mut result = request.required_previous()?;
    let mac = (!options.mac.is_empty()).then(|| arguments::mac(&options.mac)).transpose()?;
    let sysctls = options.sysctls(&request.interface)?;
    let (name, work) = (request.interface.clone(), options.clone());
    let path = backup::path(&options.directory(), &request.container, &request.interface);
    pod::visit(request.namespace()?, move |socket| {
        for (key, value) in &sysctls {
            sysctl::write(key, value)?;
        }
        if !work.changes_link() {
            return Ok(());
        }
        let link = pod::link(socket, &name)?;
        Backup::of(&link, &work).write(&path)?;
        let mut batch = Batch::new();
        work.change(mac.as_ref()).of(&mut batch, link.index);
        socket.request(batch).map_err(|e| Error::kernel("tune", format!("{name} in the pod"), e))
    })?;
    if !options.mac.is_empty() {
        for interface in result.interfaces.iter_mut().filter(|i| i.name == request.interface) {
            interface.mac.clone_from(&options.mac);
        }
    }
    Ok(result)
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    let path = backup::path(&options.directory(), &request.container, &request.interface);
    let Some(namespace) = &request.namespace else { return backup::remove(&path) };
    // A process that was killed while it wrote a backup changed nothing of the interface.
    let Some(saved) = Backup::read(&path)? else { return backup::remove(&path) };
    let name = request.interface.clone();
    pod::visit(namespace, move |socket| {
        let found = rtnl::link_by_name(socket, &name).map_err(|e| Error::kernel("find", &name, e))?;
        if let Some(link) = found {
            saved.restore(socket, &link)?;
        }
        backup::remove(&path)
    })
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    request.required_previous()?;
    let (sysctls, name) = (options.sysctls(&request.interface)?, request.interface.clone());
    pod::visit(request.namespace()?, move |socket| {
        for (key, value) in &sysctls {
            let current = sysctl::read(key)?;
            if current.trim_end_matches('\n') != value {
                return Err(Error::differs(
                    format!("net/{key}"),
                    format!("is {:?}, not {value:?}", current.trim_end()),
                ));
            }
        }
        compare(&check::find(socket, &name)?, &options)
    })
}

fn compare(link: &Link, options: &Options) -> Result<(), Error> {
    let differs = |what: &str| Err(Error::differs(&link.name, format!("{what} is not as configured")));
    if !options.mac.is_empty() && !options.mac.eq_ignore_ascii_case(&link.mac_text()) {
        return differs("MAC address");
    }
    if (link.promiscuity > 0) != options.is_promiscuous {
        return differs("promiscuous mode");
    }
    if options.mtu > 0 && link.mtu != options.mtu {
        return differs("mtu");
    }
    if options.gets_all_multicast.is_some_and(|all| (link.flags & flags::ALL_MULTICAST != 0) != all) {
        return differs("all-multicast mode");
    }
    if options.transmit_queue.is_some_and(|length| link.transmit_queue != length) {
        return differs("length of the transmit queue");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sysctls_of_the_network_are_accepted() {
        let path = |key: &str| sysctl_path(key, "eth0.5");
        assert_eq!(path("net.core.somaxconn").unwrap(), "core/somaxconn");
        assert_eq!(path("net/ipv4/conf/IFNAME/arp_filter").unwrap(), "ipv4/conf/eth0.5/arp_filter");
        for bad in ["kernel.panic", "net", "net.", "net/../kernel/panic", "/net/core", "net..core", ""] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
    }
}
