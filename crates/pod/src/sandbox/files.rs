//! `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod, in its record's folder.

use std::{fs, net::IpAddr, os::unix::fs::chown, path::Path};

use network::Attachment;

use super::{Dns, SandboxConfig, SharedMode, namespaces::root_of};
use crate::{Error, error::failed};

/// Name in the folder, and where containers see it.
pub(crate) const SHARED_FILES: [(&str, &str); 3] =
    [("hostname", "/etc/hostname"), ("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")];

const LOCAL: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::\tip6-localnet\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n";

/// Writes all three.
pub(super) fn write(
    folder: &Path,
    config: &SandboxConfig,
    hostname: &str,
    attachment: Option<&Attachment>,
) -> Result<(), Error> {
    let hosts = match attachment {
        Some(attachment) => hosts(&attachment.ips, hostname),
        None => host_file("/etc/hosts").unwrap_or_else(|| LOCAL.to_owned()),
    };
    let resolver = match (&config.dns, attachment) {
        (Some(dns), _) if *dns != Dns::default() => resolv_conf(dns),
        (_, Some(attachment)) if config.network == SharedMode::Pod && !attachment.dns_servers.is_empty() => {
            resolv_conf(&Dns {
                servers: attachment.dns_servers.clone(),
                searches: attachment.dns_search.clone(),
                options: attachment.dns_options.clone(),
            })
        }
        _ => host_file("/etc/resolv.conf").unwrap_or_default(),
    };
    for ((name, _), text) in SHARED_FILES.iter().zip([format!("{hostname}\n"), hosts, resolver]) {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(format_args!("write {}", path.display())))?;
        if config.user_namespace.is_some() {
            let (uid, gid) = root_of(config);
            chown(&path, Some(uid), Some(gid)).map_err(failed(format_args!("chown {}", path.display())))?;
        }
    }
    Ok(())
}

fn host_file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn hosts(ips: &[IpAddr], hostname: &str) -> String {
    let own: String = ips.iter().map(|ip| format!("{ip}\t{hostname}\n")).collect();
    format!("{LOCAL}{own}")
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
    fn the_resolver_gets_what_was_asked_for() {
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
    fn a_pod_finds_itself_by_name() {
        let text = hosts(&["10.85.0.2".parse().expect("ip")], "web");
        assert!(text.starts_with("127.0.0.1\tlocalhost\n") && text.ends_with("10.85.0.2\tweb\n"));
    }
}
