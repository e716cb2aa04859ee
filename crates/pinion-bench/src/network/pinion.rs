//! Pinion: a daemon on each node; overlays by a CNI configuration that names the nodes.

use std::{path::Path, time::Duration};

use super::{
    Pair,
    driver::{COMMAND, Driver, MACVLAN, MACVLAN_SUBNET, OVERLAY, PARENT},
    image::{Image, NAME},
    node::{Node, output},
    retry,
};
use crate::engine::Failure;

/// Directories of the node with the programs that are executed in guests, and what they load.
const PROGRAMS: [&str; 3] = ["/usr", "/lib", "/lib64"];

/// Pinion's program.
pub(super) struct Pinion<'a> {
    pub(super) program: &'a Path,
    /// The image of the guests, if the containers are in virtual machines.
    pub(super) guest_image: Option<&'a Path>,
}

impl Pinion<'_> {
    fn pinion(&self, node: &Node, arguments: &[&str]) -> Result<String, Failure> {
        output(node.command(self.program).args(arguments), &format!("pinion {}", arguments.join(" ")))
    }
}

impl Driver for Pinion<'_> {
    fn start(&self, node: &mut Node, image: &Image, pair: Pair) -> Result<(), Failure> {
        // Its own directories. All else is Pinion's default.
        let mut config = format!(
            "data_dir = \"/run/pinion-data\"\ncgroup_parent = \"/{}\"\nnetwork.cni_conf_dir = \"/run/cni\"\n",
            node.cgroup()
        );
        if let Some(image) = self.guest_image {
            config.push_str("[handlers.vm]\nkind = \"vm\"\nallow_emulation = true\nboot_timeout = \"60s\"\n");
            config.push_str(&format!("image = {:?}\n", image.to_string_lossy()));
        }
        node.write("/run/config.toml", &config)?;
        if pair == Pair::Overlay {
            let list = serde_json::json!({"cniVersion": "1.1.0", "name": OVERLAY, "plugins": [
                {"type": "overlay", "vni": 7, "network": "10.244.0.0/16",
                 "nodes": {"192.0.2.1": "10.244.1.0/24", "192.0.2.2": "10.244.2.0/24"}}]});
            node.write("/run/cni/10-overlay.conflist", &list.to_string())?;
        }
        node.start(self.program, &["serve", "--config", "/run/config.toml"])?;
        retry(Duration::from_secs(60), || self.pinion(node, &["version"]))?;
        let archive = image.put(node)?;
        self.pinion(node, &["load", "--input", &archive])?;
        Ok(())
    }

    fn create_network(&self, nodes: &[Node], pair: Pair) -> Result<String, Failure> {
        if pair != Pair::Macvlan {
            return Ok("default".to_owned());
        }
        let parent = format!("parent={PARENT}");
        let create = ["network", "create", "--driver=macvlan", "--subnet", MACVLAN_SUBNET, "--opt", &parent, MACVLAN];
        self.pinion(&nodes[0], &create)?;
        Ok(MACVLAN.to_owned())
    }

    fn run(&self, node: &Node, network: &str, name: &str) -> Result<String, Failure> {
        let run = ["run", "--detach", "--pull=never", "--network", network, "--name", name];
        let volumes: Vec<String> = PROGRAMS.iter().map(|path| format!("--volume={path}:{path}:ro")).collect();
        let mut guest = Vec::new();
        if self.guest_image.is_some() {
            guest.extend(["--runtime", "vm"]);
            guest.extend(
                volumes.iter().zip(PROGRAMS).filter(|(_, path)| Path::new(path).exists()).map(|(v, _)| v.as_str()),
            );
        }
        self.pinion(node, &[&run[..], &guest, &[NAME], &COMMAND].concat())
    }
}
