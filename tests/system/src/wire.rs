//! The network between several nodes, with an etcd on it.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Node, Options, Outcome, wait_until};

/// The network between nodes: a namespace with a bridge that has the address 192.0.2.9.
pub struct Wire {
    anchor: Child,
    etcd: Option<Child>,
    directory: TempDir,
}

impl Wire {
    /// Creates the network.
    pub fn start() -> Self {
        let script = "ip link add wire type bridge && ip addr add 192.0.2.9/24 dev wire && ip link set lo up && \
            ip link set wire up && echo ready && exec sleep 1000000";
        let mut anchor = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        let output = anchor.stdout.take().expect("output");
        BufReader::new(output).read_line(&mut line).expect("the wire is ready");
        Self { anchor, etcd: None, directory: tempfile::tempdir().expect("a directory") }
    }

    /// Returns a command that runs in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.anchor.id().to_string(), "--net", "--", program]);
        command
    }

    /// Runs a script in the namespace; returns its output.
    pub fn shell(&self, script: &str) -> String {
        Outcome::of(self.command("sh").args(["-ec", script])).ok()
    }

    /// Starts etcd at 192.0.2.9, with the data of an earlier one.
    pub fn start_etcd(&mut self) {
        let (client, peer) = ("http://192.0.2.9:2379", "http://127.0.0.1:2380");
        let mut command = self.command("etcd");
        command
            .arg("--data-dir")
            .arg(self.directory.path().join("etcd"))
            .args(["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer])
            .args(["--initial-advertise-peer-urls", peer, "--initial-cluster", &format!("default={peer}")])
            .arg("--unsafe-no-fsync")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        self.etcd = Some(command.spawn().expect("etcd runs"));
        wait_until("etcd responds", || {
            Outcome::of(self.command("curl").args(["-fs", "http://192.0.2.9:2379/health"])).code == Some(0)
        });
    }

    /// Kills etcd.
    pub fn kill_etcd(&mut self) {
        if let Some(mut etcd) = self.etcd.take() {
            etcd.kill().expect("etcd is killed");
            etcd.wait().expect("etcd is reaped");
        }
    }

    /// Returns the keys of nodes: the number of the subnet, the node and the lease of each.
    pub fn claims(&self) -> Vec<(String, String, String)> {
        let (key, end) = ("L3Bpbmlvbi8=", "L3BpbmlvbjA=");
        let body = format!("{{\"key\": \"{key}\", \"range_end\": \"{end}\"}}");
        let response = self.shell(&format!("curl -fs http://192.0.2.9:2379/v3/kv/range -d '{body}'"));
        let response: Value = serde_json::from_str(&response).expect("JSON");
        let decode = |text: &Value| {
            let out = self.shell(&format!("echo {} | base64 -d", text.as_str().expect("text")));
            out.trim().to_owned()
        };
        let entries = response["kvs"].as_array().cloned().unwrap_or_default();
        let claim = |entry: &Value| {
            let key = decode(&entry["key"]);
            let value: Value = serde_json::from_str(&decode(&entry["value"])).ok()?;
            let number = key.rsplit('/').next().unwrap_or_default().to_owned();
            Some((number, value["node"].as_str()?.to_owned(), entry["lease"].as_str()?.to_owned()))
        };
        entries.iter().filter_map(claim).collect()
    }

    /// Returns the names of all keys of overlays.
    pub fn keys(&self) -> Vec<String> {
        let script = "curl -fs http://192.0.2.9:2379/v3/kv/range -d '{\"key\": \"L3Bpbmlvbi8=\", \"range_end\": \"L3BpbmlvbjA=\", \
            \"keys_only\": true}'";
        let response: Value = serde_json::from_str(&self.shell(script)).expect("JSON");
        let entries = response["kvs"].as_array().cloned().unwrap_or_default();
        let decode = |entry: &Value| {
            let key = entry["key"].as_str().expect("text");
            self.shell(&format!("echo {key} | base64 -d")).trim().to_owned()
        };
        entries.iter().map(decode).collect()
    }

    /// Writes a key.
    pub fn put(&self, key: &str, value: &str) {
        let file = self.directory.path().join("value");
        std::fs::write(&file, value).expect("write the value");
        let file = file.display();
        self.shell(&format!(
            "printf '{{\"key\": \"%s\", \"value\": \"%s\"}}' $(printf %s {key} | base64 -w0) $(base64 -w0 {file}) > {file}.json; \
             curl -fs http://192.0.2.9:2379/v3/kv/put -d @{file}.json"
        ));
    }

    /// Starts a node of overlays that people create by name, with the demonstration image. It is connected as by
    /// [`connect`](Self::connect), and its daemon uses the etcd of the wire.
    pub fn start_node(&self, number: u8) -> Node {
        let config = "network.overlay.endpoints = [\"http://192.0.2.9:2379\"]\n".to_owned();
        let mut node = Node::new(Options { config, ..Options::default() });
        self.connect(&node, number);
        node.start_daemon();
        node.load_image();
        node
    }

    /// Connects a node, which gets the address 192.0.2.NUMBER.
    pub fn connect(&self, node: &Node, number: u8) {
        let pid = node.init_pid();
        self.shell(&format!(
            "ip link add w{number} type veth peer name eth0 netns {pid} && ip link set w{number} up master wire"
        ));
        let script = format!(
            "ip addr add 192.0.2.{number}/24 dev eth0 && ip link set eth0 up && ip route add default via 192.0.2.9"
        );
        node.run("sh", &["-ec", &script]).ok();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for process in self.etcd.iter_mut().chain([&mut self.anchor]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
