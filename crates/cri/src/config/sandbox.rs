use std::collections::{BTreeMap, HashMap};

use cri_proto::v1;
use pod::{Dns, Name, PodNetworks, SandboxConfig};

use super::{field, limits, namespace, port};
use crate::Failure;

/// Maximum entries of each kind in the resolv.conf of a pod.
const DNS_MAX: usize = 64;

/// Validates the configuration of a pod.
pub(crate) fn sandbox(message: v1::PodSandboxConfig, runtime_handler: String) -> Result<SandboxConfig, Failure> {
    let linux = message.linux.unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let namespaces = namespace::of_pod(
        "config.linux.security_context.namespace_options",
        &security.namespace_options.unwrap_or_default(),
    )?;
    if security.privileged && namespaces.user.is_some() {
        return Err(Failure::invalid(
            "config.linux.security_context.privileged",
            "cannot be combined with a user namespace",
        ));
    }
    Ok(SandboxConfig {
        name: name(message.metadata)?,
        hostname: field::hostname("config.hostname", &message.hostname)?,
        log_directory: match message.log_directory.as_str() {
            "" => None,
            path => Some(field::absolute_path("config.log_directory", path)?),
        },
        dns: message.dns_config.map(dns).transpose()?,
        ports: port::ports("config.port_mappings", &message.port_mappings)?,
        labels: field::map("config.labels", message.labels)?,
        annotations: field::map("config.annotations", message.annotations)?,
        cgroup_parent: match linux.cgroup_parent.as_str() {
            "" => None,
            // Whether the path fits the cgroup driver is checked by the engine.
            path => Some(field::text("config.linux.cgroup_parent", path)?),
        },
        sysctls: sysctls(linux.sysctls)?,
        network: namespaces.network,
        named: PodNetworks::default(),
        ipc: namespaces.ipc,
        pid: namespaces.pid,
        user_namespace: namespaces.user,
        privileged: security.privileged,
        runtime_handler,
        resources: linux.resources.map(|r| limits("config.linux.resources", &r)).transpose()?.map(|l| l.resources),
        overhead: linux.overhead.map(|r| limits("config.linux.overhead", &r)).transpose()?.map(|l| l.resources),
    })
}

fn name(metadata: Option<v1::PodSandboxMetadata>) -> Result<Name, Failure> {
    let metadata = metadata.ok_or_else(|| Failure::invalid("config.metadata", "is missing"))?;
    Ok(Name {
        name: field::name("config.metadata.name", &metadata.name)?,
        uid: field::optional_name("config.metadata.uid", &metadata.uid)?,
        namespace: field::optional_name("config.metadata.namespace", &metadata.namespace)?,
        attempt: metadata.attempt,
    })
}

fn dns(message: v1::DnsConfig) -> Result<Dns, Failure> {
    let at = "config.dns_config";
    for (name, list) in [("servers", &message.servers), ("searches", &message.searches), ("options", &message.options)]
    {
        if list.len() > DNS_MAX {
            return Err(Failure::invalid(
                &format!("{at}.{name}"),
                format_args!("{} entries; at most {DNS_MAX}", list.len()),
            ));
        }
    }
    for (index, server) in message.servers.iter().enumerate() {
        field::name_server(&format!("{at}.servers[{index}]"), server)?;
    }
    for (index, search) in message.searches.iter().enumerate() {
        field::word(&format!("{at}.searches[{index}]"), search)?;
    }
    for (index, option) in message.options.iter().enumerate() {
        field::word(&format!("{at}.options[{index}]"), option)?;
    }
    Ok(Dns { servers: message.servers, searches: message.searches, options: message.options })
}

fn sysctls(messages: HashMap<String, String>) -> Result<BTreeMap<String, String>, Failure> {
    let at = "config.linux.sysctls";
    for (name, value) in &messages {
        let valid = !name.is_empty()
            && !name.contains("..")
            && !name.starts_with(['.', '/'])
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
        if !valid {
            return Err(Failure::invalid(at, format_args!("{name:?} is not a valid sysctl name")));
        }
        field::text(&format!("{at}[{name}]"), value)?;
    }
    Ok(messages.into_iter().collect())
}
