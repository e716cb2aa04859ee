//! `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod.
//!
//! Containers may write to these files. So they are on a small tmpfs of the pod, which is not mounted anywhere and is
//! kept as a descriptor ([`super::SharedResource`]): filling it affects nothing else.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::{PermissionsExt, fchown},
};

use network::{Attachment, NodeFile};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags, openat},
};

use super::{id_map::root_of, tmpfs::make_tmpfs};
use crate::{Dns, Error, SandboxConfig, SharedMode, error::failed};

/// Names in the tmpfs, and their paths in containers.
pub(crate) const SHARED_FILES: [(&str, &str); 3] =
    [("hostname", "/etc/hostname"), ("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")];
/// Mount point in the record's directory on kernels that cannot clone a detached mount.
pub(crate) const FILES: &str = "files";

/// Files of the node that may be copied for the pod.
const NODE_FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Number of bytes copied from one of them.
const NODE_FILE_MAX: u64 = 8 << 20;
/// Number of bytes that containers may write in addition.
const ROOM: u64 = 1 << 20;

const LOCAL: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::\tip6-localnet\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n";

/// Creates the empty tmpfs for the files.
pub(crate) fn make() -> Result<OwnedFd, Error> {
    let length = |path| fs::metadata(path).map_or(0, |metadata| metadata.len().min(NODE_FILE_MAX));
    let size = NODE_FILES.map(length).iter().sum::<u64>() + ROOM;
    // Inodes: the root, three files, and some room for the kernel's rounding.
    let options = [("source", "pod-files"), ("size", &size.to_string()), ("nr_inodes", "8"), ("mode", "0755")];
    make_tmpfs(&options).map_err(failed("create a tmpfs for /etc/hosts"))
}

/// Writes the three files to the tmpfs, owned by root of the pod.
pub(crate) fn write(
    tmpfs: impl AsFd,
    config: &SandboxConfig,
    hostname: &str,
    attachment: Option<&Attachment>,
    has_resolver: bool,
) -> Result<(), Error> {
    let mut hosts = match attachment {
        Some(attachment) if has_resolver => hosts(&all_addresses(attachment), hostname),
        Some(attachment) => hosts(&attachment.ips, hostname),
        None => node_file(NODE_FILES[0]).unwrap_or_else(|| LOCAL.to_owned()),
    };
    hosts.push_str(&requested_hosts(config, attachment)?);
    let resolver = match (&config.dns, attachment) {
        (dns, _) if has_resolver => resolv_conf(&own_resolver(dns.as_ref())),
        (Some(dns), _) if *dns != Dns::default() && !dns.servers.is_empty() => resolv_conf(dns),
        // Only the other settings were requested.
        (Some(dns), _) if *dns != Dns::default() && attachment.is_none_or(|a| a.dns_servers.is_empty()) => {
            resolv_conf(&with_node_servers(dns))
        }
        (_, Some(attachment)) if config.network == SharedMode::Pod && !attachment.dns_servers.is_empty() => {
            resolv_conf(&Dns {
                servers: attachment.dns_servers.clone(),
                searches: attachment.dns_search.clone(),
                options: attachment.dns_options.clone(),
            })
        }
        _ => node_file(NODE_FILES[1]).unwrap_or_default(),
    };
    for ((name, _), text) in SHARED_FILES.iter().zip([format!("{hostname}\n"), hosts, resolver]) {
        let operation = format!("write the pod's {name}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&tmpfs, *name, flags, Mode::from_raw_mode(0o644)).map_err(failed(&operation))?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes()).map_err(failed(&operation))?;
        file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed(&operation))?;
        if config.user_namespace.is_some() {
            let (uid, gid) = root_of(config);
            fchown(&file, Some(uid), Some(gid)).map_err(failed(&operation))?;
        }
    }
    Ok(())
}

/// Returns the addresses of a pod in all of its networks.
fn all_addresses(attachment: &Attachment) -> Vec<IpAddr> {
    attachment.ips.iter().chain(attachment.secondary.iter().flat_map(|one| &one.ips)).copied().collect()
}

/// Returns the requested lines of `/etc/hosts`.
fn requested_hosts(config: &SandboxConfig, attachment: Option<&Attachment>) -> Result<String, Error> {
    let gateway = match config.network {
        SharedMode::Node => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        SharedMode::Pod => attachment.and_then(Attachment::gateway),
    };
    let line = |entry: &network::HostEntry| match entry.resolve(gateway) {
        Some(address) => Ok(format!("{address}\t{}\n", entry.name)),
        None => Err(Error::invalid(format!("host {}: the pod's first network has no gateway", entry.name))),
    };
    config.named.hosts.iter().map(line).collect()
}

/// Returns the settings of a pod whose names the daemon resolves. Names without a period are names of its networks, so
/// they are looked up as they are first, as in Docker.
fn own_resolver(requested: Option<&Dns>) -> Dns {
    let node = NodeFile::parse(&node_file(NODE_FILES[1]).unwrap_or_default());
    let requested = requested.cloned().unwrap_or_default();
    let or_node = |requested: Vec<String>, node| if requested.is_empty() { node } else { requested };
    let mut options = or_node(requested.options, node.options);
    if !options.iter().any(|option| option.starts_with("ndots:")) {
        options.push("ndots:0".to_owned());
    }
    Dns {
        servers: vec![network::RESOLVER_ADDRESS.to_string()],
        searches: or_node(requested.searches, node.searches),
        options,
    }
}

/// Adds the servers of the node to settings without servers.
fn with_node_servers(dns: &Dns) -> Dns {
    let node = NodeFile::parse(&node_file(NODE_FILES[1]).unwrap_or_default());
    Dns { servers: node.servers.iter().map(ToString::to_string).collect(), ..dns.clone() }
}

fn node_file(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(NODE_FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hosts(ips: &[IpAddr], hostname: &str) -> String {
    let lines: String = ips.iter().map(|ip| format!("{ip}\t{hostname}\n")).collect();
    format!("{LOCAL}{lines}")
}

fn resolv_conf(dns: &Dns) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_the_requested_settings() {
        let dns = Dns {
            servers: vec!["10.0.0.10".into(), "1.1.1.1".into()],
            searches: vec!["a.local".into(), "b.local".into()],
            options: vec!["ndots:5".into()],
        };
        assert_eq!(
            resolv_conf(&dns),
            "search a.local b.local\nnameserver 10.0.0.10\nnameserver 1.1.1.1\noptions ndots:5\n"
        );
    }

    #[test]
    fn a_pod_resolves_its_own_name() {
        let text = hosts(&["10.85.0.2".parse().expect("ip")], "web");
        assert!(text.starts_with("127.0.0.1\tlocalhost\n") && text.ends_with("10.85.0.2\tweb\n"));
    }
}
