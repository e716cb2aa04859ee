//! Sends one packet from a pod, and shows its way through the network namespaces of a node: the routes, neighbours and
//! links that it takes, the rules of nftables that it passes, how its addresses change, and where it is lost.
//!
//! ```text
//! trace       puts it all together        marks     has the kernel report on the packet
//! route       follows links and routes    probe     sends the packet
//! step        what is found               texts     rules as people write them
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

pub use error::Error;
pub use probe::{Answer, Probe};
pub use step::{Found, Step};
pub use trace::{Place, Request, Trace, trace};
