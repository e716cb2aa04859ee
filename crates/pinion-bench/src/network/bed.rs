//! Test beds: an engine with two places that can reach each other, by the drivers of a pair.

use std::net::Ipv4Addr;

use super::{
    Arguments, Engine, Pair, docker,
    driver::{Driver, PARENT},
    guest::Guest,
    image::Image,
    namespace::NamespacePlace,
    node::Node,
    pinion,
    place::Place,
    retry, tap,
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
        Engine::Pinion | Engine::Tap => Box::new(pinion::Pinion { program: &arguments.pinion, guest_image: None }),
        Engine::Vm => {
            Box::new(pinion::Pinion { program: &arguments.pinion, guest_image: Some(&arguments.guest_image) })
        }
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
    let place = |node: &Node, name: &str| -> Result<Place, Failure> {
        // The overlay of a node is ready some time after its daemon.
        let id = retry(std::time::Duration::from_secs(30), || driver.run(node, &network, name));
        let id = id.map_err(|error| node.with_log(error))?;
        match engine {
            Engine::Vm => Ok(Place::Guest(Guest::new(node, &arguments.pinion, name)?)),
            Engine::Tap => Ok(Place::Namespace(tap::move_to_guest(NamespacePlace::of_container(node, &id)?)?)),
            Engine::Pinion | Engine::Docker => Ok(Place::Namespace(NamespacePlace::of_container(node, &id)?)),
        }
    };
    let server = place(&nodes[last], "server")?;
    let client = match pair {
        Pair::Host => Place::Namespace(NamespacePlace::of_node(&nodes[0])?),
        _ => place(&nodes[0], "client")?,
    };
    let address = server.address("eth0")?;
    Ok(Bed { client, server, address, _nodes: nodes })
}
