//! The networks that `pinion run` requests for a new pod.

use cri_proto::{NETWORK_METADATA, v1};
use pod::{HostEntry, NetworkChoice, PodNetworks};
use tonic::{Request, metadata::MetadataValue};

use super::{arguments::Args, networks::Network};

/// What a pod requests of networks.
#[derive(Debug, Default)]
pub(super) struct Networks {
    pub(super) is_host: bool,
    request: PodNetworks,
    dns: Option<v1::DnsConfig>,
}

impl Networks {
    /// Checks the arguments in combination.
    pub(super) fn new(args: &Args) -> Result<Self, String> {
        let mut named: Vec<NetworkChoice> = Vec::new();
        for network in &args.network {
            match network {
                Network::Named(choice) => named.push(choice.clone()),
                _ if args.network.len() > 1 => {
                    return Err("--network default, host and none cannot be combined with other networks".to_owned());
                }
                _ => {}
            }
        }
        let has_requests = !args.ip.is_empty() || args.mac_address.is_some() || !args.network_alias.is_empty();
        match named.first_mut() {
            Some(first) => {
                first.ips.extend(&args.ip);
                first.mac = args.mac_address.clone().or(first.mac.take());
                first.aliases.extend(args.network_alias.iter().cloned());
                first.check()?;
            }
            None if has_requests => {
                return Err(
                    "--ip, --ip6, --mac-address and --network-alias require a network of `pinion network create`: \
                            --network NAME"
                        .to_owned(),
                );
            }
            None => {}
        }
        let networks = match args.network.first() {
            Some(Network::Named(_)) => Some(named),
            Some(Network::None) => Some(Vec::new()),
            _ => None,
        };
        let is_host = args.network.first() == Some(&Network::Host);
        let hosts =
            args.add_host.iter().map(|(name, address)| HostEntry { name: name.clone(), address: address.clone() });
        let request = PodNetworks { networks, hosts: hosts.collect() };
        let text = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        PodNetworks::parse(&text)?;
        let has_dns = !(args.dns.is_empty() && args.dns_search.is_empty() && args.dns_option.is_empty());
        let dns = has_dns.then(|| v1::DnsConfig {
            servers: args.dns.iter().map(ToString::to_string).collect(),
            searches: args.dns_search.iter().filter(|search| *search != ".").cloned().collect(),
            options: args.dns_option.clone(),
        });
        Ok(Self { is_host, request, dns })
    }

    /// Whether anything was requested that only a new pod can get.
    pub(super) fn is_requested(&self) -> bool {
        self.has_metadata() || self.dns.is_some()
    }

    /// Whether the daemon has to know named networks.
    pub(super) fn has_metadata(&self) -> bool {
        self.request != PodNetworks::default()
    }

    pub(super) fn dns(&self) -> Option<v1::DnsConfig> {
        self.dns.clone()
    }

    /// Adds what was requested to the metadata of a request.
    pub(super) fn add_to<T>(&self, message: T) -> Result<Request<T>, String> {
        let mut request = Request::new(message);
        if self.has_metadata() {
            let text = serde_json::to_vec(&self.request).map_err(|error| error.to_string())?;
            request.metadata_mut().insert_bin(NETWORK_METADATA, MetadataValue::from_bytes(&text));
        }
        Ok(request)
    }
}
