//! The `info` of verbose responses: a JSON object under the key `info`. It uses the names of containerd's, so that
//! scripts around `crictl inspect` keep working.

use std::collections::HashMap;

use pod::{ContainerConfig, ContainerStatus, Image, SandboxConfig, SandboxStatus};
use serde_json::{Map, Value, json};

use super::{container as container_message, sandbox as sandbox_message};

/// Returns the info of `crictl inspectp`: the state of the engine, and the requested configuration.
pub(crate) fn sandbox(status: &SandboxStatus, known: Value) -> HashMap<String, String> {
    let mut info = object(known);
    info.insert("config".to_owned(), without_empty(sandbox_config(&status.config)));
    info.entry("runtimeHandler").or_insert_with(|| json!(status.config.runtime_handler));
    info.entry("stage").or_insert_with(|| json!(status.stage));
    keyed(info)
}

/// Returns the info of `crictl inspect`: the state of the engine, and the requested configuration.
pub(crate) fn container(status: &ContainerStatus, known: Value) -> HashMap<String, String> {
    let mut info = object(known);
    info.insert("config".to_owned(), without_empty(container_config(&status.config)));
    info.insert("sandboxID".to_owned(), json!(status.sandbox));
    info.insert("pid".to_owned(), json!(status.pid.unwrap_or(0)));
    info.entry("removing").or_insert(json!(false));
    info.entry("stage").or_insert_with(|| json!(status.stage));
    keyed(info)
}

/// Returns the info of `crictl inspecti`: the image's configuration, unmodified.
pub(crate) fn image(image: &Image) -> HashMap<String, String> {
    let mut info = Map::new();
    info.insert("imageSpec".to_owned(), image.raw_config.as_ref().clone());
    keyed(info)
}

/// Removes empty members and zeros recursively, so that only settings remain that the client made.
pub(super) fn without_empty(value: Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    match value {
        Value::Object(map) => {
            let members =
                map.into_iter().map(|(key, value)| (key, without_empty(value))).filter(|(_, value)| !empty(value));
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

fn object(known: Value) -> Map<String, Value> {
    match known {
        Value::Object(map) => map,
        other => Map::from_iter([("state".to_owned(), other)]),
    }
}

fn keyed(info: Map<String, Value>) -> HashMap<String, String> {
    HashMap::from([("info".to_owned(), Value::Object(info).to_string())])
}

fn sandbox_config(config: &SandboxConfig) -> Value {
    let metadata = sandbox_message::metadata(config);
    let namespaces = sandbox_message::namespaces(config);
    let dns = config.dns.as_ref().map(|d| json!({"servers": d.servers, "searches": d.searches, "options": d.options}));
    let ports: Vec<Value> = config
        .ports
        .iter()
        .map(|p| {
            json!({"protocol": format!("{:?}", p.protocol).to_uppercase(), "container_port": p.container_port,
                "host_port": p.host_port, "host_ip": p.host_ip.map(|ip| ip.to_string())})
        })
        .collect();
    json!({
        "metadata": {"name": metadata.name, "uid": metadata.uid, "namespace": metadata.namespace, "attempt": metadata.attempt},
        "hostname": config.hostname,
        "log_directory": config.log_directory,
        "dns_config": dns,
        "port_mappings": ports,
        "labels": config.labels,
        "annotations": config.annotations,
        "linux": {
            "cgroup_parent": config.cgroup_parent,
            "sysctls": config.sysctls,
            "security_context": {
                "namespace_options": {"network": namespaces.network, "pid": namespaces.pid, "ipc": namespaces.ipc},
                "privileged": config.privileged,
            },
        },
    })
}

fn container_config(config: &ContainerConfig) -> Value {
    let security = &config.security;
    let mounts: Vec<Value> = config
        .volumes
        .iter()
        .map(|v| {
            json!({"container_path": v.container_path, "host_path": v.host_path, "readonly": v.readonly,
                "propagation": container_message::mount(v).propagation().as_str_name(), "recursive_read_only": v.recursive_readonly,
                "selinux_relabel": v.selinux_relabel, "mount_options": v.options, "uidMappings": v.uid_mappings,
                "gidMappings": v.gid_mappings, "image": v.image.as_ref().map(|image| json!({"image": image.image})),
                "image_sub_path": v.image.as_ref().map(|image| &image.sub_path)})
        })
        .collect();
    let devices: Vec<Value> = config
        .devices
        .iter()
        .map(|d| json!({"container_path": d.container_path, "host_path": d.host_path, "permissions": d.permissions}))
        .collect();
    json!({
        "metadata": {"name": config.name, "attempt": config.attempt},
        "image": {"image": config.image, "user_specified_image": config.user_specified_image},
        "command": config.command,
        "args": config.args,
        "working_dir": config.working_dir,
        "envs": config.env.iter().map(|(key, value)| json!({"key": key, "value": value})).collect::<Vec<_>>(),
        "mounts": mounts,
        "devices": devices,
        "CDI_devices": config.cdi_devices.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "labels": config.labels,
        "annotations": config.annotations,
        "log_path": config.log_path,
        "stdin": config.stdin,
        "stdin_once": config.stdin_once,
        "tty": config.tty,
        "linux": {
            "resources": serde_json::to_value(&config.resources).unwrap_or_default(),
            "security_context": serde_json::to_value(security).unwrap_or_default(),
        },
    })
}
