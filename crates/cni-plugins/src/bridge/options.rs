//! Options of `bridge`.

use serde::Deserialize;

use crate::{Error, Request, address_management, arguments};

/// Largest VLAN number.
const VLAN_MAX: u16 = 4094;

/// Parsed options.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) bridge: String,
    pub(super) is_gateway: bool,
    pub(super) is_default_gateway: bool,
    pub(super) replaces_address: bool,
    pub(super) masquerades: bool,
    pub(super) mtu: u32,
    pub(super) hairpin: bool,
    pub(super) is_promiscuous: bool,
    /// VLAN of frames without a tag; zero for none.
    pub(super) vlan: u16,
    /// VLANs of frames with a tag, in ascending order; `None` if none are configured.
    pub(super) trunk: Option<Vec<u16>>,
    pub(super) keeps_default_vlan: bool,
    pub(super) checks_mac: bool,
    pub(super) detects_duplicates: bool,
    pub(super) leaves_pod_down: bool,
    pub(super) is_isolated: bool,
    pub(super) mac: Option<[u8; 6]>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Raw {
    bridge: String,
    #[serde(rename = "isGateway")]
    is_gateway: bool,
    #[serde(rename = "isDefaultGateway")]
    is_default_gateway: bool,
    #[serde(rename = "forceAddress")]
    replaces_address: bool,
    #[serde(rename = "ipMasq")]
    masquerades: bool,
    #[serde(rename = "ipMasqBackend")]
    masquerade_backend: String,
    mtu: u32,
    #[serde(rename = "hairpinMode")]
    hairpin: bool,
    #[serde(rename = "promiscMode")]
    is_promiscuous: bool,
    vlan: u16,
    #[serde(rename = "vlanTrunk")]
    trunk: Option<Vec<Trunk>>,
    #[serde(rename = "preserveDefaultVlan")]
    keeps_default_vlan: bool,
    #[serde(rename = "macspoofchk")]
    checks_mac: bool,
    #[serde(rename = "enabledad")]
    detects_duplicates: bool,
    #[serde(rename = "disableContainerInterface")]
    leaves_pod_down: bool,
    #[serde(rename = "portIsolation")]
    is_isolated: bool,
}

#[derive(Deserialize)]
struct Trunk {
    #[serde(rename = "minID")]
    first: Option<u16>,
    #[serde(rename = "maxID")]
    last: Option<u16>,
    id: Option<u16>,
}

impl Options {
    pub(super) fn parse(request: &Request) -> Result<Self, Error> {
        let raw: Raw = request.options()?;
        let bridge = if raw.bridge.is_empty() { "cni0".to_owned() } else { raw.bridge };
        if !rtnl::valid_name(&bridge) {
            return Err(Error::config("bridge", format!("{bridge:?} is not a valid link name")));
        }
        if raw.vlan > VLAN_MAX {
            return Err(Error::config("vlan", format!("{} is more than {VLAN_MAX}", raw.vlan)));
        }
        if raw.hairpin && raw.is_promiscuous {
            return Err(Error::config("hairpinMode", "must not be set together with promiscMode"));
        }
        if raw.leaves_pod_down && address_management::is_configured(request) {
            return Err(Error::config("disableContainerInterface", "must not be set together with ipam"));
        }
        if !matches!(raw.masquerade_backend.as_str(), "" | "iptables" | "nftables") {
            return Err(Error::config("ipMasqBackend", format!("{:?} is unknown", raw.masquerade_backend)));
        }
        Ok(Self {
            bridge,
            is_gateway: raw.is_gateway || raw.is_default_gateway,
            is_default_gateway: raw.is_default_gateway,
            replaces_address: raw.replaces_address,
            masquerades: raw.masquerades,
            mtu: raw.mtu,
            hairpin: raw.hairpin,
            is_promiscuous: raw.is_promiscuous,
            vlan: raw.vlan,
            trunk: raw.trunk.as_deref().map(trunk).transpose()?,
            keeps_default_vlan: raw.keeps_default_vlan,
            checks_mac: raw.checks_mac,
            detects_duplicates: raw.detects_duplicates,
            leaves_pod_down: raw.leaves_pod_down,
            is_isolated: raw.is_isolated,
            mac: arguments::requested_mac(request)?,
        })
    }

    /// Reports whether the bridge must filter by VLAN.
    pub(super) fn filters_vlans(&self) -> bool {
        self.vlan != 0 || self.trunk.is_some()
    }
}

fn trunk(items: &[Trunk]) -> Result<Vec<u16>, Error> {
    let invalid = |reason: &str| Error::config("vlanTrunk", reason);
    let is_valid = |id: u16| (1..=VLAN_MAX).contains(&id);
    let mut all = std::collections::BTreeSet::new();
    for item in items {
        match (item.first, item.last) {
            (Some(first), Some(last)) if is_valid(first) && is_valid(last) && first <= last => all.extend(first..=last),
            (None, None) => {}
            (Some(_), Some(_)) => return Err(invalid("minID and maxID are not a range from 1 to 4094")),
            _ => return Err(invalid("minID and maxID belong together")),
        }
        match item.id {
            Some(id) if is_valid(id) => all.extend([id]),
            Some(_) => return Err(invalid("id is not from 1 to 4094")),
            None => {}
        }
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(mut config: Value) -> Result<Options, String> {
        for (key, value) in [("name", "n"), ("cniVersion", "1.0.0"), ("type", "bridge")] {
            config[key] = value.into();
        }
        Options::parse(&Request::new(config).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn trunks_are_ranges_and_single_numbers() {
        let options = parse(json!({"vlanTrunk": [{"minID": 10, "maxID": 12}, {"id": 5}, {"id": 11}]})).unwrap();
        assert_eq!(options.trunk.as_deref(), Some(&[5, 10, 11, 12][..]));
        assert!(options.filters_vlans() && options.bridge == "cni0");
    }

    #[test]
    fn contradictions_are_refused() {
        for (config, expected) in [
            (json!({"vlan": 4095}), "more than 4094"),
            (json!({"vlanTrunk": [{"minID": 5}]}), "belong together"),
            (json!({"vlanTrunk": [{"minID": 5, "maxID": 4}]}), "not a range"),
            (json!({"vlanTrunk": [{"id": 0}]}), "id is not"),
            (json!({"hairpinMode": true, "promiscMode": true}), "together with promiscMode"),
            (json!({"disableContainerInterface": true, "ipam": {"type": "static"}}), "together with ipam"),
            (json!({"bridge": "a/b"}), "not a valid link name"),
            (json!({"mtu": -1}), "mtu"),
            (json!({"runtimeConfig": {"mac": "x"}}), "not a MAC address"),
        ] {
            let error = parse(config).unwrap_err();
            assert!(error.contains(expected) || expected == "mtu", "{error}");
        }
    }
}
