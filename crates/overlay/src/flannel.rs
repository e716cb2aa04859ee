//! `subnet.env`, in which flannel's daemon describes the subnet of a node.

use std::{fs, io::Read, path::Path};

use rtnl::subnet::Subnet;

use crate::Error;

/// Longest file that is read, in bytes; usual ones have 200.
const FILE_MAX: u64 = 64 * 1024;

/// Contents of `subnet.env`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlannelEnvironment {
    /// Address ranges of the whole network (`FLANNEL_NETWORK`, which may be a list, and `FLANNEL_IPV6_NETWORK`).
    pub networks: Vec<Subnet>,
    /// Subnets of this node with the addresses of its gateways (`FLANNEL_SUBNET`, `FLANNEL_IPV6_SUBNET`).
    pub subnets: Vec<Subnet>,
    /// MTU of pods.
    pub mtu: Option<u32>,
    /// Whether flannel masquerades packets that leave the network.
    pub masquerades: bool,
}

impl FlannelEnvironment {
    /// Reads the file, which flannel's daemon writes when it has a subnet.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the file cannot be read, [`Error::Config`] if a value is not valid or missing.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let object = path.display().to_string();
        let read = || {
            let mut text = String::new();
            fs::File::open(path)?.take(FILE_MAX).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|cause: std::io::Error| Error::kernel("read", &object, cause))?;
        Self::parse(&text).map_err(|reason| Error::config(object, reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut environment = Self::default();
        let (mut networks6, mut subnets6, mut masquerades) = (Vec::new(), Vec::new(), None);
        for line in text.lines().map(str::trim) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let invalid = |reason: String| format!("{key}: {reason}");
            match key {
                "FLANNEL_NETWORK" => environment.networks = list(value).map_err(invalid)?,
                "FLANNEL_IPV6_NETWORK" => networks6 = list(value).map_err(invalid)?,
                "FLANNEL_SUBNET" => environment.subnets = list(value).map_err(invalid)?,
                "FLANNEL_IPV6_SUBNET" => subnets6 = list(value).map_err(invalid)?,
                "FLANNEL_MTU" => environment.mtu = Some(value.parse().map_err(|_| invalid(format!("{value:?}")))?),
                "FLANNEL_IPMASQ" => masquerades = Some(value == "true"),
                _ => {}
            }
        }
        environment.networks.extend(networks6);
        environment.subnets.extend(subnets6);
        let missing = |key: &str| Err(format!("{key} is missing"));
        match (&environment.networks[..], &environment.subnets[..], environment.mtu) {
            ([], ..) => missing("FLANNEL_NETWORK"),
            (_, [], _) => missing("FLANNEL_SUBNET"),
            (_, _, None) => missing("FLANNEL_MTU"),
            _ => match masquerades {
                None => missing("FLANNEL_IPMASQ"),
                Some(masquerades) => Ok(Self { masquerades, ..environment }),
            },
        }
    }
}

fn list(value: &str) -> Result<Vec<Subnet>, String> {
    value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let text = "FLANNEL_NETWORK=10.244.0.0/16,10.245.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n\
                    FLANNEL_IPV6_NETWORK=fd44::/48\nFLANNEL_IPV6_SUBNET=fd44:0:0:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        let environment = FlannelEnvironment::parse(text).unwrap();
        let text = |subnets: &[Subnet]| subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&environment.networks), "10.244.0.0/16 10.245.0.0/16 fd44::/48");
        assert_eq!(text(&environment.subnets), "10.244.1.1/24 fd44:0:0:1::1/64");
        assert_eq!((environment.mtu, environment.masquerades), (Some(1450), true));
    }

    #[test]
    fn what_is_missing_or_not_valid_is_named() {
        let full =
            "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";
        assert!(FlannelEnvironment::parse(full).is_ok());
        for (from, to, expected) in [
            ("FLANNEL_NETWORK=10.244.0.0/16", "", "FLANNEL_NETWORK is missing"),
            ("FLANNEL_SUBNET=10.244.1.1/24", "", "FLANNEL_SUBNET is missing"),
            ("1450", "", "FLANNEL_MTU"),
            ("FLANNEL_IPMASQ=false", "", "FLANNEL_IPMASQ is missing"),
            ("10.244.1.1/24", "10.244.1.1", "FLANNEL_SUBNET: \"10.244.1.1\""),
        ] {
            let error = FlannelEnvironment::parse(&full.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
