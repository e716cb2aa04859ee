//! The types, and which functions implement the commands of each.

use serde_json::{Map, Value};

use crate::{
    Error, PluginResult, Request, address_management, bandwidth, bridge, dummy, firewall, flannel, host_device,
    host_local, ipvlan, link, loopback, macvlan, overlay, portmap, ptp, sbr, static_addresses, tap, tuning, vlan, vrf,
};

/// A type of plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginType {
    /// Limits what a pod sends and receives.
    Bandwidth,
    /// Veth pair on a bridge.
    Bridge,
    /// Dummy interface.
    Dummy,
    /// Rules that accept packets of the pod.
    Firewall,
    /// What flannel's daemon describes, as configuration of another plugin.
    Flannel,
    /// A link of the node, moved to the pod.
    HostDevice,
    /// Addresses from ranges of this host.
    HostLocal,
    /// IP-based VLAN.
    Ipvlan,
    /// The loopback interface.
    Loopback,
    /// MAC-based VLAN.
    Macvlan,
    /// Bridge in the node's subnet of a network that several nodes have.
    Overlay,
    /// Ports of the node that lead to the pod.
    Portmap,
    /// Veth pair that the node routes to.
    Ptp,
    /// Source-based routing.
    Sbr,
    /// Addresses that the configuration names.
    Static,
    /// Tap device.
    Tap,
    /// Sysctls and attributes of an interface.
    Tuning,
    /// 802.1Q VLAN.
    Vlan,
    /// Virtual routing and forwarding.
    Vrf,
}

impl PluginType {
    /// All types.
    pub const ALL: [Self; 19] = [
        Self::Bandwidth,
        Self::Bridge,
        Self::Dummy,
        Self::Firewall,
        Self::Flannel,
        Self::HostDevice,
        Self::HostLocal,
        Self::Ipvlan,
        Self::Loopback,
        Self::Macvlan,
        Self::Overlay,
        Self::Portmap,
        Self::Ptp,
        Self::Sbr,
        Self::Static,
        Self::Tap,
        Self::Tuning,
        Self::Vlan,
        Self::Vrf,
    ];

    /// Returns the name of the type in configurations, which is that of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Bridge => "bridge",
            Self::Dummy => "dummy",
            Self::Firewall => "firewall",
            Self::Flannel => "flannel",
            Self::HostDevice => "host-device",
            Self::HostLocal => "host-local",
            Self::Ipvlan => "ipvlan",
            Self::Loopback => "loopback",
            Self::Macvlan => "macvlan",
            Self::Overlay => "overlay",
            Self::Portmap => "portmap",
            Self::Ptp => "ptp",
            Self::Sbr => "sbr",
            Self::Static => "static",
            Self::Tap => "tap",
            Self::Tuning => "tuning",
            Self::Vlan => "vlan",
            Self::Vrf => "vrf",
        }
    }

    /// Returns the type of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Reports whether all that a configuration requests is implemented here, without any program. The rest is for the
    /// reference plugin.
    #[must_use]
    pub fn supports(self, config: &Map<String, Value>) -> bool {
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let manager = config.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Value::as_str).unwrap_or_default();
        matches!(manager, "" | "host-local" | "static")
            && match self {
                Self::Portmap => portmap::is_supported(config),
                Self::Firewall => matches!(text("backend"), "nftables"),
                Self::Flannel => flannel::is_supported(config),
                _ => true,
            }
    }

    /// Reports whether `DEL` may run some time after the pod's removal was reported: no other pod can get in conflict with
    /// what is left until then, except by an `ADD` that fails. So types that have something that exists only once on the
    /// node are not among them, and no addresses that are not leased.
    #[must_use]
    pub fn is_deferrable(self, config: &Map<String, Value>) -> bool {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let manager = text(config.get("ipam").and_then(|ipam| ipam.get("type")));
        self.supports(config)
            && matches!(manager.as_str(), "" | "host-local")
            && match self {
                // A device, a VLAN of a link, or all frames of a link.
                Self::HostDevice | Self::Vlan => false,
                Self::Macvlan => text(config.get("mode")) != "passthru",
                Self::Static => false,
                Self::Flannel => flannel::is_deferrable(config),
                _ => true,
            }
    }

    /// Runs `ADD`: adds the pod to the network.
    ///
    /// # Errors
    /// What could not be done. What was done before that is undone.
    pub fn attach(self, request: &Request) -> Result<PluginResult, Error> {
        match self {
            Self::Bandwidth => bandwidth::add(request),
            Self::Bridge => bridge::add(request),
            Self::Dummy => dummy::add(request),
            Self::Firewall => firewall::add(request),
            Self::Flannel => flannel::add(request),
            Self::HostDevice => host_device::add(request),
            Self::HostLocal => host_local::add(request),
            Self::Ipvlan => ipvlan::add(request),
            Self::Loopback => loopback::add(request),
            Self::Macvlan => macvlan::add(request),
            Self::Overlay => overlay::add(request),
            Self::Portmap => portmap::add(request),
            Self::Ptp => ptp::add(request),
            Self::Sbr => sbr::add(request),
            Self::Static => static_addresses::add(request),
            Self::Tap => tap::add(request),
            Self::Tuning => tuning::add(request),
            Self::Vlan => vlan::add(request),
            Self::Vrf => vrf::add(request),
        }
    }

    /// Runs `DEL`: removes the pod from the network. Succeeds for what is gone.
    ///
    /// # Errors
    /// What could not be removed; call it again.
    pub fn detach(self, request: &Request) -> Result<(), Error> {
        match self {
            Self::Bandwidth => bandwidth::delete(request),
            Self::Bridge => bridge::delete(request),
            Self::Firewall => firewall::delete(request),
            Self::Flannel => flannel::delete(request),
            Self::HostDevice => host_device::delete(request),
            Self::HostLocal => host_local::delete(request),
            Self::Dummy | Self::Ipvlan | Self::Macvlan | Self::Tap | Self::Vlan => link::delete(request),
            Self::Loopback => loopback::delete(request),
            Self::Overlay => overlay::delete(request),
            Self::Portmap => portmap::delete(request),
            Self::Ptp => ptp::delete(request),
            Self::Sbr => sbr::delete(request),
            Self::Static => Ok(()),
            Self::Tuning => tuning::delete(request),
            Self::Vrf => vrf::delete(request),
        }
    }

    /// Runs `CHECK`: compares the pod's network with the configuration and the previous result.
    ///
    /// # Errors
    /// [`Error::Differs`], or the kernel's error.
    pub fn check(self, request: &Request) -> Result<(), Error> {
        match self {
            Self::Bandwidth => bandwidth::check(request),
            Self::Bridge => bridge::check(request),
            Self::Dummy => dummy::check(request),
            Self::Firewall => firewall::check(request),
            Self::Flannel => flannel::check(request),
            Self::HostDevice => host_device::check(request),
            Self::HostLocal => host_local::check(request),
            Self::Ipvlan => ipvlan::check(request),
            Self::Loopback => loopback::check(request),
            Self::Macvlan => macvlan::check(request),
            Self::Overlay => overlay::check(request),
            Self::Portmap => portmap::check(request),
            Self::Ptp => ptp::check(request),
            Self::Sbr => sbr::check(request),
            Self::Static => static_addresses::check(request),
            Self::Tap => tap::check(request),
            Self::Tuning => tuning::check(request),
            Self::Vlan => vlan::check(request),
            Self::Vrf => vrf::check(request),
        }
    }

    /// Runs `STATUS`: reports an error if no pod can be added.
    ///
    /// # Errors
    /// Why the plugin is not ready.
    pub fn status(self, request: &Request) -> Result<(), Error> {
        match self {
            Self::HostLocal => host_local::status(request),
            Self::Static => static_addresses::status(request),
            Self::Portmap => portmap::status(request),
            Self::Flannel => flannel::status(request),
            Self::Overlay => overlay::status(request),
            Self::Bandwidth | Self::Firewall | Self::Loopback | Self::Sbr | Self::Tuning | Self::Vrf => Ok(()),
            _ => address_management::status(request),
        }
    }

    /// Runs `GC`: removes what attachments left that are not valid.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn collect(self, request: &Request) -> Result<(), Error> {
        match self {
            Self::Bridge => bridge::collect(request),
            Self::Ptp => ptp::collect(request),
            Self::HostLocal => host_local::collect(request),
            Self::Flannel => flannel::collect(request),
            Self::Overlay => overlay::collect(request),
            Self::Dummy | Self::HostDevice | Self::Ipvlan | Self::Macvlan | Self::Tap | Self::Vlan => {
                address_management::collect(request)
            }
            _ => Ok(()),
        }
    }

    /// Returns the versions of the specification that the type has: `firewall` needs results of 0.4.0.
    #[must_use]
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Firewall => &crate::VERSIONS[2..],
            Self::Vrf => &crate::VERSIONS[1..],
            _ => &crate::VERSIONS,
        }
    }
}
