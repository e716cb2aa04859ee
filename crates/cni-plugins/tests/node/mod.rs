//! Nodes and pods as network namespaces, and plugin programs that are run on them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Map, Value, json};
use testbed::shell;

/// Directory with a link to the program under test for each type.
const OWN_PROGRAMS: &str = "/run/programs";

/// The search path of plugin programs: with nft and ip, and without
/// iptables, which the reference plugins prefer where it is installed.
const SEARCH_PATH: &str = "/run/search-path";

/// Container id of pods.
const CONTAINER: &str = "0123456789abcdef";
/// Name and container id of a node's second pod.
pub(crate) const SECOND: &str = "second";

/// A node and a pod of it.
pub(crate) struct Node {
    /// Name, which is that of the node's namespace; the pod's is `<name>-pod`.
    pub(crate) name: String,
}

/// A plugin that failed: its error code and message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u64,
    pub(crate) message: String,
}

/// Makes the links to the program under test, and returns their directory.
pub(crate) fn own_programs() -> PathBuf {
    // The static program if it was built, which also exists in a virtual machine.
    let built = std::env::var_os("PINION_BIN").map(|directory| Path::new(&directory).join("pinion-cni"));
    let program = built.unwrap_or_else(|| env!("CARGO_BIN_EXE_pinion-cni").into());
    let program = program.display();
    shell(&format!(
        "mkdir -p {OWN_PROGRAMS}; for name in $({program} --list); do ln -sf {program} {OWN_PROGRAMS}/$name; done"
    ));
    OWN_PROGRAMS.into()
}

impl Node {
    /// Creates a node with the links `up0` and `up1`, a veth pair, and a pod.
    pub(crate) fn new(name: &str) -> Self {
        let node = Self { name: name.to_owned() };
        shell(&format!("mkdir -p {SEARCH_PATH}; ln -sf $(command -v nft) $(command -v ip) {SEARCH_PATH}/"));
        shell(&format!("mkdir -p /run/{name}; ip netns add {name}; ip netns add {name}-pod"));
        node.shell("ip link set lo up; ip link add up0 address 02:00:00:00:00:10 type veth peer name up1 address 02:00:00:00:00:11");
        node.shell("ip link set up0 up; ip link set up1 up; ip addr add 192.0.2.1/24 dev up0");
        node.pod_shell("ip link set lo up");
        node
    }

    /// Runs a script in the node's namespace.
    pub(crate) fn shell(&self, script: &str) -> String {
        enter(&self.name, script)
    }

    /// Runs a script in the pod's namespace.
    pub(crate) fn pod_shell(&self, script: &str) -> String {
        enter(&format!("{}-pod", self.name), script)
    }

    pub(crate) fn pod_path(&self) -> String {
        format!("/run/netns/{}-pod", self.name)
    }

    /// Runs a command of a plugin. `DIRECTORY` in the configuration stands for a directory of the node.
    pub(crate) fn run(
        &self,
        programs: &Path,
        command: &str,
        config: &Value,
        arguments: &str,
    ) -> Result<Option<Value>, Failure> {
        let kind = config["type"].as_str().expect("a type");
        let text = config.to_string().replace("DIRECTORY", &format!("/run/{}", self.name));
        let mut child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.name))
            .args(["env", &format!("PATH={SEARCH_PATH}")])
            .arg(programs.join(kind))
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", if self.name == SECOND { SECOND } else { CONTAINER })
            .env("CNI_NETNS", self.pod_path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", arguments)
            .env("CNI_PATH", programs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter runs");
        // `VERSION` does not read the configuration.
        let _ = child.stdin.take().expect("stdin").write_all(text.as_bytes());
        let out = child.wait_with_output().expect("output");
        let value: Option<Value> = serde_json::from_slice(&out.stdout).ok();
        if out.status.success() {
            return Ok(value);
        }
        let value = value.unwrap_or_else(|| panic!("{kind} {command}: no error result: {out:?}"));
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Err(Failure { code: value["code"].as_u64().unwrap_or_default(), message: text("msg") + &text("details") })
    }
}

fn enter(namespace: &str, script: &str) -> String {
    // A mount of sysfs shows the links of the namespace in which it was made.
    shell(&format!("nsenter --net=/run/netns/{namespace} sh -ec '{script}'"))
}

/// A list of plugins, as an engine runs it.
pub(crate) struct Chain {
    pub(crate) version: &'static str,
    pub(crate) plugins: Vec<Value>,
    pub(crate) runtime: Value,
    pub(crate) arguments: &'static str,
}

impl Chain {
    pub(crate) fn new(plugins: Vec<Value>) -> Self {
        Self { version: "1.1.0", plugins, runtime: json!({}), arguments: "" }
    }

    fn config(&self, plugin: &Value, previous: Option<&Value>) -> Value {
        let mut config: Map<String, Value> = plugin.as_object().expect("an object").clone();
        config.insert("name".into(), "net".into());
        config.insert("cniVersion".into(), self.version.into());
        if self.runtime != json!({}) {
            config.insert("runtimeConfig".into(), self.runtime.clone());
        }
        config.extend(previous.map(|previous| ("prevResult".into(), previous.clone())));
        Value::Object(config)
    }

    /// Runs `ADD` of all plugins; returns the result of each.
    pub(crate) fn add(&self, node: &Node, programs: &Path) -> Result<Vec<Value>, Failure> {
        let mut results: Vec<Value> = Vec::new();
        for plugin in &self.plugins {
            let config = self.config(plugin, results.last());
            let result = node.run(programs, "ADD", &config, self.arguments)?;
            results.push(result.expect("a result"));
        }
        Ok(results)
    }

    /// Runs a command of all plugins, `DEL` in reverse.
    pub(crate) fn run(&self, node: &Node, programs: &Path, command: &str, result: &Value) -> Result<(), Failure> {
        let mut plugins: Vec<&Value> = self.plugins.iter().collect();
        if command == "DEL" {
            plugins.reverse();
        }
        for plugin in plugins {
            node.run(programs, command, &self.config(plugin, Some(result)), self.arguments)?;
        }
        Ok(())
    }
}
