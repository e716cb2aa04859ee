//! Errors of a trace.

use std::{io, net::IpAddr};

use rtnl::netlink::Refusal;

/// Why a packet could not be traced. A lost packet is not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel refused to show links, routes or neighbours, or to mark packets.
    #[error("{operation} in {place}: {cause}")]
    Kernel {
        /// What was requested.
        operation: &'static str,
        /// Name of the pod, or `node`.
        place: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The pod has no address of the destination's family.
    #[error("pod {pod} has no address of {family}, as {destination} needs it", family = family_name(*destination))]
    Family {
        /// Name of the pod.
        pod: String,
        /// Destination.
        destination: IpAddr,
    },
}

fn family_name(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Describes an error of the kernel.
pub(crate) fn failed<E: Into<io::Error>>(operation: &'static str, place: &str) -> impl FnOnce(E) -> Error {
    let place = place.to_owned();
    move |cause| Error::Kernel { operation, place, cause: cause.into() }
}

/// Like [`failed`], for a request to the kernel.
pub(crate) fn refused(operation: &'static str, place: &str) -> impl FnOnce(Refusal) -> Error {
    failed(operation, place)
}
