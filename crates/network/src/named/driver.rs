//! Drivers of named networks.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How a named network connects its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// A bridge of the node, with masquerading and published ports.
    Bridge,
    /// Links with MAC addresses of their own on a link of the node.
    Macvlan,
    /// Links with the MAC address of a link of the node.
    Ipvlan,
    /// A network over several nodes.
    Overlay,
    /// The network of the node. It exists once, and cannot be created.
    Host,
    /// Loopback only. It exists once, and cannot be created.
    None,
}

impl Driver {
    const ALL: [Self; 6] = [Self::Bridge, Self::Macvlan, Self::Ipvlan, Self::Overlay, Self::Host, Self::None];

    /// Returns the name, as in `-d NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::Overlay => "overlay",
            Self::Host => "host",
            Self::None => "none",
        }
    }

    /// Reports why no network of this driver can be created.
    ///
    /// # Errors
    /// The reason, with what to do.
    pub(crate) fn creatable(self) -> Result<(), &'static str> {
        match self {
            Self::Bridge | Self::Macvlan | Self::Ipvlan | Self::Overlay => Ok(()),
            Self::Host => Err("the network of the node exists already; use: pinion run --network host"),
            Self::None => Err("a pod without a network needs no definition; use: pinion run --network none"),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Driver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let driver =
            Self::ALL.into_iter().find(|driver| driver.name() == text || (text == "null" && *driver == Self::None));
        driver.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|driver| driver.name()).collect();
            format!("driver {text:?} is unknown; use one of {}", names.join(", "))
        })
    }
}
