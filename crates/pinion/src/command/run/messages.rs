//! Converts the arguments into CRI messages. All arguments are checked before anything is created.

use std::collections::HashMap;

use cri_proto::v1;
use pod::{
    annotation,
    oci::{DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS},
};

use super::{arguments::Args, network_request::Networks};
use crate::{Failure, environment, lookup::PORTS, ports::Publish};

/// CPU quota period of `--cpus`, in microseconds.
const PERIOD: i64 = 100_000;
/// Maximum length of a host name in bytes (hostname(7)).
const HOSTNAME_MAX: usize = 63;

/// The validated parts of the messages.
pub(super) struct Messages {
    envs: Vec<v1::KeyValue>,
    labels: HashMap<String, String>,
    mounts: Vec<v1::Mount>,
    pub(super) networks: Networks,
}

impl Messages {
    pub(super) fn new(args: &Args) -> Result<Self, String> {
        if args.image().is_empty() {
            return Err("the image name is empty".to_owned());
        }
        if args.entrypoint.as_deref() == Some("") && args.command().is_empty() {
            return Err("--entrypoint \"\" without a command: give a command after the image".to_owned());
        }
        let env = environment::all(&args.env_file, &args.env)?;
        let label = |text: &String| match text.split_once('=') {
            Some(("", _)) => Err(format!("label {text:?} has no name")),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Ok((text.clone(), String::new())),
        };
        Ok(Self {
            envs: env.into_iter().map(|(key, value)| v1::KeyValue { key, value: value.into_bytes() }).collect(),
            labels: args.label.iter().map(label).collect::<Result<_, _>>()?,
            networks: Networks::new(args)?,
            mounts: args.volume.iter().map(|bind| bind.mount()).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the configuration of the pod, without log directory and annotations.
    pub(super) fn pod(&self, args: &Args, name: &str, uid: String) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid,
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            dns_config: self.networks.dns(),
            hostname: match self.networks.is_host {
                true => String::new(),
                false => args.hostname.clone().unwrap_or_else(|| hostname(name)),
            },
            port_mappings: args.publish.iter().flat_map(Publish::mappings).collect(),
            linux: Some(v1::LinuxPodSandboxConfig {
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces(self.networks.is_host)),
                    privileged: args.privileged,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Returns the configuration of the container.
    pub(super) fn container(self, args: &Args, name: &str, image: String) -> v1::ContainerConfig {
        let published: Vec<String> = args.publish.iter().map(ToString::to_string).collect();
        let ports = (!published.is_empty()).then(|| (PORTS.to_owned(), published.join(", ")));
        // The daemon cleans up when the container exits, because this program may be gone by then. A pod with other
        // containers keeps its ports.
        let cleanup = match (args.rm, &args.pod) {
            (true, _) => Some(annotation::REMOVE_ENDED),
            (false, None) => Some(annotation::RELEASE_ENDED),
            (false, Some(_)) => None,
        };
        let cleanup = cleanup.map(|name| (name.to_owned(), "true".to_owned()));
        let (command, arguments) = program(args);
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image, user_specified_image: args.image().to_owned(), ..Default::default() }),
            command,
            args: arguments,
            working_dir: args.workdir.clone().unwrap_or_default(),
            envs: self.envs,
            mounts: self.mounts,
            labels: self.labels,
            annotations: ports.into_iter().chain(cleanup).collect(),
            log_path: format!("{name}.log"),
            stdin: args.interactive,
            stdin_once: args.interactive && !args.detach,
            tty: args.tty,
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(resources(args)),
                security_context: Some(security(args, self.networks.is_host)),
            }),
            stop_signal: args.stop_signal.map_or(v1::Signal::RuntimeDefault, signal).into(),
            ..Default::default()
        }
    }
}

/// Returns `command` and `args` of the CRI: a command replaces both entrypoint and command of the image; arguments
/// without a command replace only the command of the image.
fn program(args: &Args) -> (Vec<String>, Vec<String>) {
    match (args.entrypoint.as_deref(), args.command()) {
        (None, command) => (Vec::new(), command.to_vec()),
        // The entrypoint is reset, as with `docker run --entrypoint ""`: the first word is the program.
        (Some(""), command) => {
            let (program, arguments) = command.split_at(command.len().min(1));
            (program.to_vec(), arguments.to_vec())
        }
        (Some(entrypoint), command) => (vec![entrypoint.to_owned()], command.to_vec()),
    }
}

fn namespaces(is_host: bool) -> v1::NamespaceOption {
    let network = if is_host { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
    v1::NamespaceOption { network: network.into(), pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}

fn resources(args: &Args) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        // `cpus` is in thousandths of a core. The kernel refuses quotas below 1 ms.
        cpu_quota: args.cpus.map_or(0, |milli| (milli * PERIOD / 1000).max(1000)),
        cpu_period: args.cpus.map_or(0, |_| PERIOD),
        memory_limit_in_bytes: args.memory.unwrap_or(0),
        ..Default::default()
    }
}

fn security(args: &Args, is_host: bool) -> v1::LinuxContainerSecurityContext {
    let paths =
        |list: &[&str]| if args.privileged { Vec::new() } else { list.iter().map(|path| (*path).to_owned()).collect() };
    let mut security = v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: args.cap_add.clone(),
            drop_capabilities: args.cap_drop.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: args.privileged,
        namespace_options: Some(namespaces(is_host)),
        readonly_rootfs: args.read_only,
        masked_paths: paths(&DEFAULT_MASKED_PATHS),
        readonly_paths: paths(&DEFAULT_READONLY_PATHS),
        seccomp: Some(v1::SecurityProfile::default()),
        ..Default::default()
    };
    let id = |text: &str| text.parse().ok().map(|value| v1::Int64Value { value });
    if let Some(user) = &args.user {
        let (name, group) = user.split_once(':').map_or((user.as_str(), None), |(name, group)| (name, Some(group)));
        match (id(name), group.map(id)) {
            (Some(uid), None) => security.run_as_user = Some(uid),
            (Some(uid), Some(Some(gid))) => (security.run_as_user, security.run_as_group) = (Some(uid), Some(gid)),
            // A group by name is looked up in the image with the user.
            _ => security.run_as_username.clone_from(user),
        }
    }
    security
}

/// Returns the CRI's value for a signal number. An unknown number becomes the default, which is the image's signal.
fn signal(number: i32) -> v1::Signal {
    let name = pod::Signal::from_number(number).map(|signal| signal.to_string()).unwrap_or_default();
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    v1::Signal::from_str_name(&format!("SIGNAL_{name}")).unwrap_or_default()
}

/// Turns a container name into a valid host name.
fn hostname(name: &str) -> String {
    let text: String = name.chars().map(|c| if c == '_' { '-' } else { c }).take(HOSTNAME_MAX).collect();
    text.trim_end_matches(['-', '.']).to_owned()
}

/// Generates a container name from an image reference: `registry/busybox:1` becomes `busybox-3fa94c`, for example.
pub(super) fn random_name(image: &str) -> Result<String, Failure> {
    let name = image.split('@').next().and_then(|name| name.rsplit('/').next()).unwrap_or("");
    let name: String = name
        .split(':')
        .next()
        .unwrap_or("")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(40)
        .collect();
    let name = if name.is_empty() { "container".to_owned() } else { name };
    Ok(format!("{name}-{}", &hex()?[..6]))
}

/// Generates a unique id for a pod.
pub(super) fn random_uid() -> Result<String, Failure> {
    hex()
}

fn hex() -> Result<String, Failure> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new(format!("getrandom: {}", std::io::Error::from(error))))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
