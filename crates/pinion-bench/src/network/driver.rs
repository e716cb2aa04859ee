//! What the test beds need of an engine.

use super::{Pair, image::Image, node::Node};
use crate::engine::Failure;

/// Name and link of the network with macvlan links.
pub(super) const MACVLAN: &str = "lan";
pub(super) const PARENT: &str = "parent0";
pub(super) const MACVLAN_SUBNET: &str = "198.51.100.0/24";
/// Name of the network of two nodes.
pub(super) const OVERLAY: &str = "cluster";
/// What the containers run.
pub(super) const COMMAND: [&str; 2] = ["/bin/sleep", "1000000"];

/// What an engine does on its nodes.
pub(super) trait Driver {
    /// Starts the engine's daemon on a node, and loads the image.
    fn start(&self, node: &mut Node, image: &Image, pair: Pair) -> Result<(), Failure>;

    /// Joins the nodes and creates the network of a pair, if it is not a default one. Returns the network's name.
    fn create_network(&self, nodes: &[Node], pair: Pair) -> Result<String, Failure>;

    /// Runs a container and returns its id.
    fn run(&self, node: &Node, network: &str, name: &str) -> Result<String, Failure>;
}
