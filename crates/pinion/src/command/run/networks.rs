//! Values of `--network` and `--add-host`.

use std::{net::IpAddr, str::FromStr};

use pod::NetworkChoice;

/// One `--network`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// A new namespace with an address in the network of all pods.
    Default,
    /// The namespace of the host.
    Host,
    /// A new namespace with loopback only.
    None,
    /// A network that was created.
    Named(NetworkChoice),
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Docker: name=NETWORK,ip=…. Podman: NETWORK:ip=….
        let (name, settings) = match text.split_once(':') {
            Some((name, settings)) => (name, settings.to_owned()),
            None if text.contains('=') => {
                let (names, settings): (Vec<&str>, Vec<&str>) =
                    text.split(',').partition(|setting| setting.starts_with("name="));
                let [name] = names[..] else { return Err(format!("{text:?} has no name=NETWORK")) };
                (name.trim_start_matches("name="), settings.join(","))
            }
            None => (text, String::new()),
        };
        let mut choice = NetworkChoice { network: name.to_owned(), ..NetworkChoice::default() };
        for setting in settings.split(',').filter(|_| name != "container").filter(|setting| !setting.is_empty()) {
            set(&mut choice, setting)?;
        }
        if name == "container" {
            return Err("containers share a network in a pod; use --pod NAME for both".to_owned());
        }
        let is_plain = choice == NetworkChoice { network: name.to_owned(), ..NetworkChoice::default() };
        match name {
            "default" | "bridge" | "host" | "none" if !is_plain => {
                Err(format!("network {name} has no settings; use them with a network of `pinion network create`"))
            }
            "default" | "bridge" => Ok(Self::Default),
            "host" => Ok(Self::Host),
            "none" => Ok(Self::None),
            _ => {
                choice.check()?;
                Ok(Self::Named(choice))
            }
        }
    }
}

fn set(choice: &mut NetworkChoice, setting: &str) -> Result<(), String> {
    let (key, value) = setting.split_once('=').ok_or_else(|| format!("{setting:?} is not KEY=VALUE"))?;
    let address = || value.parse::<IpAddr>().map_err(|_| format!("{key} {value:?} is not an IP address"));
    match key {
        "ip" | "ip6" => choice.ips.push(address()?),
        "mac" | "mac-address" => choice.mac = Some(value.to_owned()),
        "alias" => choice.aliases.push(value.to_owned()),
        _ => return Err(format!("setting {key:?} is unknown; use ip, ip6, mac or alias")),
    }
    Ok(())
}

/// Parses `NAME:ADDRESS` or `NAME=ADDRESS`; an IPv6 address may be in brackets.
pub(crate) fn host(text: &str) -> Result<(String, String), String> {
    let (name, address) = text.split_once([':', '=']).ok_or_else(|| format!("{text:?} is not NAME:ADDRESS"))?;
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
    Ok((name.to_owned(), bare.to_owned()))
}
