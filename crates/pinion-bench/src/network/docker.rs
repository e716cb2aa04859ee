//! Docker: a dockerd on each node; overlays by its swarm mode.

use std::{path::Path, process::Command, time::Duration};

use super::{
    Pair,
    driver::{COMMAND, Driver, MACVLAN, MACVLAN_SUBNET, OVERLAY, PARENT},
    image::{Image, NAME},
    node::{Node, output},
    retry,
};
use crate::engine::Failure;

/// Docker's programs.
pub(super) struct Docker<'a> {
    pub(super) daemon: &'a Path,
    pub(super) client: &'a Path,
}

impl Docker<'_> {
    fn docker(&self, node: &Node, arguments: &[&str]) -> Result<String, Failure> {
        let mut command: Command = node.command(self.client);
        command.env("DOCKER_HOST", "unix:///run/docker.sock").env("DOCKER_CONFIG", "/run/docker-config");
        command.args(arguments);
        output(&mut command, &format!("docker {}", arguments.join(" ")))
    }

    /// Makes a swarm of the nodes.
    fn join(&self, nodes: &[Node]) -> Result<(), Failure> {
        let init = ["swarm", "init", "--advertise-addr", "192.0.2.1", "--listen-addr", "192.0.2.1:2377"];
        self.docker(&nodes[0], &init)?;
        let token = self.docker(&nodes[0], &["swarm", "join-token", "--quiet", "worker"])?;
        for node in &nodes[1..] {
            self.docker(node, &["swarm", "join", "--token", &token, "192.0.2.1:2377"])?;
        }
        Ok(())
    }
}

impl Driver for Docker<'_> {
    fn start(&self, node: &mut Node, image: &Image, _pair: Pair) -> Result<(), Failure> {
        node.write("/run/daemon.json", "{}")?;
        // As deep as the containers of pods are: each level of cgroups costs some time at every wake-up.
        let parent = format!("/{}/pod", node.cgroup());
        // Its own directories, and what a machine without systemd and CAP_SYS_RESOURCE needs. All else is Docker's default.
        let arguments = [
            "--config-file=/run/daemon.json",
            "--host=unix:///run/docker.sock",
            "--data-root=/run/docker-data",
            "--exec-root=/run/docker-exec",
            "--pidfile=/run/dockerd.pid",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--oom-score-adjust=0",
            "--cgroup-parent",
            &parent,
        ];
        node.start(self.daemon, &arguments)?;
        retry(Duration::from_secs(60), || self.docker(node, &["version"]))?;
        let archive = image.put(node)?;
        self.docker(node, &["load", "--input", &archive])?;
        Ok(())
    }

    fn create_network(&self, nodes: &[Node], pair: Pair) -> Result<String, Failure> {
        match pair {
            Pair::Bridge | Pair::Host => return Ok("bridge".to_owned()),
            Pair::Macvlan => {
                let parent = format!("parent={PARENT}");
                let create =
                    ["network", "create", "--driver=macvlan", "--subnet", MACVLAN_SUBNET, "--opt", &parent, MACVLAN];
                self.docker(&nodes[0], &create)?;
                return Ok(MACVLAN.to_owned());
            }
            Pair::Overlay => {}
        }
        self.join(nodes)?;
        self.docker(&nodes[0], &["network", "create", "--driver=overlay", "--attachable", OVERLAY])?;
        Ok(OVERLAY.to_owned())
    }

    fn run(&self, node: &Node, network: &str, name: &str) -> Result<String, Failure> {
        // A container whose network failed exists all the same.
        let _ = self.docker(node, &["rm", "--force", name]);
        let run = ["run", "--detach", "--pull=never", "--network", network, "--name", name, NAME];
        self.docker(node, &[&run[..], &COMMAND].concat())
    }
}
