//! Options of drivers (`-o KEY=VALUE`), under the names that Docker has for them.

use std::collections::BTreeMap;

use super::driver::Driver;

/// Smallest MTU of an IPv4 network (RFC 791).
const MTU_MIN: u32 = 68;
/// Largest MTU of a link.
const MTU_MAX: u32 = 65_535;

const BRIDGE: [&str; 5] = [
    "com.docker.network.bridge.name",
    "com.docker.network.bridge.enable_icc",
    "com.docker.network.bridge.enable_ip_masquerade",
    "com.docker.network.driver.mtu",
    "mtu",
];
const MACVLAN: [&str; 4] = ["parent", "macvlan_mode", "com.docker.network.driver.mtu", "mtu"];
const IPVLAN: [&str; 4] = ["parent", "ipvlan_mode", "com.docker.network.driver.mtu", "mtu"];
const OVERLAY: [&str; 6] = [
    VNI,
    "com.docker.network.driver.overlay.vxlanid_list",
    SUBNET_LENGTH,
    ENCRYPTED,
    "com.docker.network.driver.mtu",
    "mtu",
];
/// Option of overlays: the VXLAN network identifier.
pub(crate) const VNI: &str = "vni";
/// Option of overlays: the length of the prefix of a node's subnet, for each subnet of the network.
pub(crate) const SUBNET_LENGTH: &str = "subnet_length";
/// Option of overlays: whether packets between nodes are encrypted. As with Docker it needs no value.
pub(crate) const ENCRYPTED: &str = "encrypted";
/// Largest VXLAN network identifier (RFC 7348).
const VNI_MAX: u32 = (1 << 24) - 1;

/// The parsed options of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Options {
    Bridge(BridgeSettings),
    /// `macvlan` and `ipvlan`.
    Child(ChildSettings),
    Overlay(OverlaySettings),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeSettings {
    pub(crate) name: Option<String>,
    /// Whether pods of the network may exchange packets.
    pub(crate) icc: bool,
    pub(crate) masquerade: bool,
    pub(crate) mtu: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChildSettings {
    pub(crate) parent: String,
    pub(crate) mode: String,
    pub(crate) mtu: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlaySettings {
    /// VXLAN network identifier; `None` to choose a free one.
    pub(crate) vni: Option<u32>,
    /// Length of the prefix of a node's subnet, for each subnet of the network; empty to derive it.
    pub(crate) subnet_lengths: Vec<u8>,
    /// Whether packets between nodes are encrypted; `None` for no.
    pub(crate) encrypted: Option<bool>,
    pub(crate) mtu: Option<u32>,
}

impl Options {
    /// Parses the options of a driver.
    ///
    /// # Errors
    /// What is wrong, as text. An unknown option lists the known ones.
    pub(crate) fn parse(driver: Driver, options: &BTreeMap<String, String>) -> Result<Self, String> {
        driver.creatable().map_err(str::to_owned)?;
        match driver {
            Driver::Macvlan => child(options, &MACVLAN, "macvlan_mode", &["bridge", "private", "vepa", "passthru"]),
            Driver::Ipvlan => child(options, &IPVLAN, "ipvlan_mode", &["l2", "l3", "l3s"]),
            Driver::Overlay => overlay(options),
            Driver::Bridge | Driver::Host | Driver::None => bridge(options),
        }
    }
}

fn refuse_unknown(options: &BTreeMap<String, String>, known: &[&str]) -> Result<(), String> {
    match options.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("option {key:?} is unknown; use one of {}", known.join(", "))),
    }
}

fn bridge(options: &BTreeMap<String, String>) -> Result<Options, String> {
    refuse_unknown(options, &BRIDGE)?;
    let [name, icc, masquerade, ..] = BRIDGE;
    let name = options.get(name).cloned();
    if let Some(name) = name.as_ref().filter(|name| !is_link_name(name)) {
        return Err(format!("bridge name {name:?} is not a valid name of a link"));
    }
    Ok(Options::Bridge(BridgeSettings {
        name,
        icc: flag(options, icc, true)?,
        masquerade: flag(options, masquerade, true)?,
        mtu: mtu(options)?,
    }))
}

fn child(options: &BTreeMap<String, String>, known: &[&str], mode: &str, modes: &[&str]) -> Result<Options, String> {
    refuse_unknown(options, known)?;
    let parent = options
        .get("parent")
        .ok_or("option parent is missing: the link of the node that pods are connected to; use -o parent=LINK")?;
    if !is_link_name(parent) {
        return Err(format!("parent {parent:?} is not a valid name of a link"));
    }
    let value = options.get(mode).map_or(modes[0], String::as_str);
    if !modes.contains(&value) {
        return Err(format!("{mode} {value:?} is unknown; use one of {}", modes.join(", ")));
    }
    Ok(Options::Child(ChildSettings { parent: parent.clone(), mode: value.to_owned(), mtu: mtu(options)? }))
}

fn overlay(options: &BTreeMap<String, String>) -> Result<Options, String> {
    refuse_unknown(options, &OVERLAY)?;
    let vni = match OVERLAY.iter().take(2).find_map(|key| options.get(*key)) {
        None => None,
        Some(text) => {
            let vni = text.parse().ok().filter(|vni| (1..=VNI_MAX).contains(vni));
            Some(vni.ok_or_else(|| format!("{VNI} {text:?} is not a number from 1 to {VNI_MAX}"))?)
        }
    };
    let lengths = options.get(SUBNET_LENGTH).map(|text| text.split(',').map(str::parse).collect::<Result<_, _>>());
    let subnet_lengths = lengths.transpose().map_err(|_| {
        format!("{SUBNET_LENGTH} {:?} is not a number of bits for each subnet, such as 24", options[SUBNET_LENGTH])
    })?;
    Ok(Options::Overlay(OverlaySettings {
        vni,
        subnet_lengths: subnet_lengths.unwrap_or_default(),
        encrypted: match options.get(ENCRYPTED).map(String::as_str) {
            None => None,
            Some("") => Some(true),
            Some(_) => Some(flag(options, ENCRYPTED, false)?),
        },
        mtu: mtu(options)?,
    }))
}

fn is_link_name(name: &str) -> bool {
    rtnl::valid_name(name) && name.bytes().all(|b| b.is_ascii_graphic()) && !["lo", "all", "default"].contains(&name)
}

fn flag(options: &BTreeMap<String, String>, key: &str, default: bool) -> Result<bool, String> {
    match options.get(key).map(String::as_str) {
        None => Ok(default),
        Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(format!("{key} {other:?} is neither true nor false")),
    }
}

fn mtu(options: &BTreeMap<String, String>) -> Result<Option<u32>, String> {
    let text = options.get("com.docker.network.driver.mtu").or_else(|| options.get("mtu"));
    let Some(text) = text else { return Ok(None) };
    let mtu = text.parse().ok().filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu));
    mtu.map(Some).ok_or_else(|| format!("mtu {text:?} is not a number from {MTU_MIN} to {MTU_MAX}"))
}
