//! What a plugin gets: its configuration with what the runtime adds (section 3 of the specification), and `CNI_ARGS`.
//!
//! `capabilities` stays in the configuration, although the specification demands that it is removed: libcni passes it on,
//! and plugins that run other plugins read it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Chain, Plugin};
use crate::{NetworkSelection, PodRef, PortMapping, attachment_key::AttachmentKey};

/// The pod that a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) pod: &'a PodRef,
    /// Path of the namespace; `None` if it is gone.
    pub(crate) ns_path: Option<&'a Path>,
    pub(crate) interface: &'a str,
    pub(crate) ports: &'a [PortMapping],
    /// What the pod requests of the network.
    pub(crate) selection: Option<&'a NetworkSelection>,
    /// Whether built-in types run in this process.
    pub(crate) in_process: bool,
    /// The namespace, if its path may be gone although links of the pod exist.
    pub(crate) namespace: Option<&'a netns::Namespace>,
}

impl Call<'_> {
    /// Returns the configuration of a plugin for `ADD`, `DEL` or `CHECK`. A capability argument is passed only to plugins
    /// that declare the capability.
    pub(super) fn configuration(self, chain: &Chain, plugin: &Plugin, previous: Option<&Value>) -> Map<String, Value> {
        let mut config = configuration(chain, plugin);
        let mut runtime = Map::new();
        for (name, value) in &self.pod.capability_args {
            if plugin.has_capability(name) {
                runtime.insert(name.clone(), value.clone());
            }
        }
        if plugin.has_capability("portMappings") && !self.ports.is_empty() {
            runtime.insert("portMappings".into(), self.ports.iter().map(port_mapping).collect());
        }
        if !runtime.is_empty() {
            config.insert("runtimeConfig".into(), Value::Object(runtime));
        }
        if let Some(previous) = previous {
            config.insert("prevResult".into(), previous.clone());
        }
        if let Some(selection) = self.selection {
            add_args(&mut config, selection);
        }
        config
    }

    /// Returns `CNI_ARGS`: `key=value` pairs separated by semicolons, so keys and values must not contain either.
    pub(super) fn arguments(self) -> Result<String, String> {
        let pod = self.pod;
        let mut pairs = vec![
            ("IgnoreUnknown", "1".to_owned()),
            ("K8S_POD_NAMESPACE", pod.namespace.clone()),
            ("K8S_POD_NAME", pod.name.clone()),
            ("K8S_POD_INFRA_CONTAINER_ID", pod.sandbox.clone()),
            ("K8S_POD_UID", pod.uid.clone()),
        ];
        pairs.extend(self.selection.map(NetworkSelection::arguments).unwrap_or_default());
        for (key, value) in &pairs {
            if value.contains([';', '=', '\0']) {
                return Err(format!("{key} {value:?} is not a valid CNI argument: it contains ; or ="));
            }
        }
        Ok(pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";"))
    }
}

/// Returns the configuration of a plugin for `GC` with the attachments that are valid.
pub(super) fn collection(chain: &Chain, plugin: &Plugin, attachments: &[AttachmentKey]) -> Map<String, Value> {
    let mut config = configuration(chain, plugin);
    let valid = |key: &AttachmentKey| json!({"containerID": key.sandbox(), "ifname": key.interface()});
    let valid: Value = attachments.iter().map(valid).collect();
    // The second name was in the specification by mistake, and plugins exist that read it.
    for name in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        config.insert(name.into(), valid.clone());
    }
    config
}

/// Returns the configuration of a plugin for every command.
pub(crate) fn configuration(chain: &Chain, plugin: &Plugin) -> Map<String, Value> {
    let mut config = plugin.config.clone();
    config.insert("name".into(), chain.name.clone().into());
    config.insert("cniVersion".into(), chain.version.clone().into());
    config
}

fn port_mapping(port: &PortMapping) -> Value {
    json!({
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": port.protocol,
        "hostIP": port.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
    })
}

/// Adds what the pod requests to `args.cni` (CNI's CONVENTIONS.md); members that the configuration has already stay.
fn add_args(config: &mut Map<String, Value>, selection: &NetworkSelection) {
    let args = selection.args();
    if args.is_empty() {
        return;
    }
    let object = |value: &mut Value| match value {
        Value::Object(_) => {}
        other => *other = Value::Object(Map::new()),
    };
    let all = config.entry("args").or_insert(Value::Null);
    object(all);
    let cni = &mut all["cni"];
    object(cni);
    for (key, value) in args {
        if cni.get(&key).is_none() {
            cni[key] = value;
        }
    }
}
