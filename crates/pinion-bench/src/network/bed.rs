//! Test beds: an engine with two places that can reach each other, by the drivers of a pair.

use std::net::Ipv4Addr;

use super::{
    Arguments, Engine, Pair, docker,
    driver::{Driver, PARENT},
    image::Image,
    node::Node,
    pinion,
    place::Place,
    retry,
};
use crate::engine::Failure;

/// The two ends of a measurement. Dropping it ends the engine.
pub(super) struct Bed {
    pub(super) client: Place,
    pub(super) server: Place,
    /// Address of the server, as the client uses it.
    pub(super) address: Ipv4Addr,
    _nodes: Vec<Node>,
}

/// Starts an engine and its containers.
pub(super) fn start(arguments: &Arguments, engine: Engine, pair: Pair, image: &Image) -> Result<Bed, Failure> {
    let driver: Box<dyn Driver> = match engine {
        Engine::Pinion => Box::new(pinion::Pinion { program: &arguments.pinion }),
        Engine::Docker => Box::new(docker::Docker { daemon: &arguments.dockerd, client: &arguments.docker }),
    };
    let mut nodes = vec![Node::create()?];
    match pair {
        Pair::Overlay => {
            nodes.push(Node::create()?);
            nodes[0].connect(&nodes[1])?;
        }
        Pair::Macvlan => {
            let links = format!(
                "ip link add {PARENT} type veth peer name wire0; ip link set {PARENT} up; ip link set wire0 up"
            );
            nodes[0].shell(&links)?;
        }
        Pair::Bridge | Pair::Host => {}
    }
    for node in &mut nodes {
        driver.start(node, image, pair).map_err(|error| node.with_log(error))?;
    }
    let network = driver.create_network(&nodes, pair).map_err(|error| nodes[0].with_log(error))?;
    let last = nodes.len() - 1;
    let place = |node: &Node, name: &str| {
        // The overlay of a node is ready some time after its daemon.
        let id = retry(std::time::Duration::from_secs(30), || driver.run(node, &network, name));
        Place::of_container(node, &id.map_err(|error| node.with_log(error))?)
    };
    let server = place(&nodes[last], "server")?;
    let client = if pair == Pair::Host { Place::of_node(&nodes[0])? } else { place(&nodes[0], "client")? };
    let address = server.address("eth0")?;
    Ok(Bed { client, server, address, _nodes: nodes })
}
