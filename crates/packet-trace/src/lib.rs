//! Sends one packet from a pod, and shows its way through the network namespaces of a node: the routes, neighbours and
//! links that it takes, the rules of nftables that it passes, how its addresses change, and where it is lost.
//!
//! ```text
//! trace    sends the packet, and puts together what is found
//! walk     follows it from place to place: links, routes, reports
//! watched  the reports of one network namespace      marks  has the kernel report on the packet
//! route    links, routes, neighbours                 texts  rules as people write them
//! place    a network namespace before and after      probe  the packet and its answer
//! ```
//!
//! The tables that mark the packet belong to a socket of this process: the kernel removes them when it ends, however it
//! ends. Needs Linux 5.12, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_SYS_ADMIN`.
#![forbid(unsafe_code)]

mod error;
mod marks;
mod place;
mod probe;
mod route;
mod step;
mod texts;
mod trace;
mod walk;
mod watched;

pub use error::Error;
pub use probe::{Answer, Probe};
pub use step::{Found, Step};
pub use trace::{Place, Request, Trace, trace};
