//! Subnets that a new network may have.

use rtnl::subnet::Subnet;

use crate::{Driver, Error, network::Inner};

/// Prefix of a route whose destinations are not the Internet, in bits.
const ROUTE_BITS_MIN: u8 = 8;

/// Returns the subnets that others have, with those that are requested; refuses one of the latter that overlaps.
pub(super) fn taken(inner: &Inner, driver: Driver, requested: &[Subnet]) -> Result<Vec<Subnet>, Refusal> {
    let named = inner.named.list();
    let mut taken: Vec<Subnet> = named.iter().flat_map(|other| other.subnets.iter().map(|pool| pool.subnet)).collect();
    taken.extend(inner.built_in.bridge().map(|options| options.subnets()).unwrap_or_default());
    let routes = inner.bridges.routes()?;
    for subnet in requested {
        if let Some(other) = taken.iter().find(|other| other.overlaps(*subnet)) {
            return Err(Refusal::Overlap(format!(
                "subnet {subnet} overlaps with {other}, which another network of pods has"
            )));
        }
        // The subnet of a macvlan or ipvlan is that of a network that the node is in.
        let takes = |route: &&Subnet| subnet.overlaps(**route) && route.prefix >= subnet.prefix;
        let takes_routes = matches!(driver, Driver::Bridge | Driver::Overlay);
        if let Some(route) = routes.iter().find(takes).filter(|_| takes_routes) {
            return Err(Refusal::Overlap(format!("the node has a route to {route}, which subnet {subnet} would take")));
        }
    }
    taken.extend(requested);
    // Routes to a large part of the address space lead to the Internet, as those of a VPN do.
    taken.extend(routes.into_iter().filter(|route| route.prefix >= ROUTE_BITS_MIN));
    Ok(taken)
}

/// Why subnets cannot be used.
pub(super) enum Refusal {
    Overlap(String),
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Refusal {
    /// Returns the error for the network that was to be created.
    pub(super) fn of_network(self, name: &str) -> Error {
        match self {
            Self::Overlap(reason) => Error::config(format!("create network {name}"), reason),
            Self::Failed(error) => error,
        }
    }
}
