use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{PidMode, SharedMode, UserMappings};

/// Propagation of mounts between the node and the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// No mounts propagate (`rprivate`).
    Private,
    /// Later mounts on the node appear in the container (`rslave`).
    HostToContainer,
    /// Mounts propagate in both directions (`rshared`).
    Bidirectional,
}

/// An image, or a path in it, as the source of a volume. It is mounted read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageVolume {
    /// Name or id of an image that is present on the node.
    pub image: String,
    /// The caller's reference to the image, for status; empty if there is none.
    pub image_ref: String,
    /// Relative path of a directory or file in the image; empty for its root.
    pub sub_path: PathBuf,
}

/// A volume: a file or directory of the node, or an image, that is mounted in the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Absolute path in the container.
    pub container_path: String,
    /// Absolute path on the node. A missing directory is created. Empty if an image is mounted.
    pub host_path: PathBuf,
    /// The image to mount instead of `host_path`.
    #[serde(default)]
    pub image: Option<ImageVolume>,
    /// Further options of a bind mount, as in the runtime specification: `noexec`, `nosuid`, …
    #[serde(default)]
    pub options: Vec<String>,
    /// Mappings of the user ids of its files (Linux 5.12); empty: the files keep their ids.
    #[serde(default)]
    pub uid_mappings: Vec<oci::IdMapping>,
    /// Mappings of the group ids of its files.
    #[serde(default)]
    pub gid_mappings: Vec<oci::IdMapping>,
    /// Whether its top mount is read-only.
    pub readonly: bool,
    /// Whether every mount below it is read-only, too.
    pub recursive_readonly: bool,
    /// Mount propagation.
    pub propagation: Propagation,
    /// Whether its files are relabelled for the container (SELinux).
    pub selinux_relabel: bool,
}

/// A device of the node that is made available in the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceMapping {
    /// Absolute path in the container.
    pub container_path: String,
    /// Path on the node of a device, or of a directory of devices.
    pub host_path: PathBuf,
    /// Any of `r` (read), `w` (write) and `m` (mknod).
    pub permissions: String,
}

/// Seccomp profile of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompChoice {
    /// The default profile.
    RuntimeDefault,
    /// No profile: all system calls are allowed.
    Unconfined,
    /// The profile in this file on the node.
    Localhost(PathBuf),
}

/// User that a process runs as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserChoice {
    /// The user that the image names, or root if it names none.
    Image,
    /// A user id.
    Uid {
        /// The user id.
        uid: i64,
        /// The group id; absent: the primary group of the user in `/etc/passwd`, or 0.
        gid: Option<i64>,
    },
    /// A name in the image's `/etc/passwd`, or `user:group`.
    Name(String),
}

/// Whether the process gets the supplementary groups that the image's `/etc/group` lists for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupsPolicy {
    /// They are added to those of the request.
    Merge,
    /// The process gets only the groups of the request.
    Strict,
}

/// Security settings of a container: a validated `LinuxContainerSecurityContext`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Security {
    /// User of the init process.
    pub user: UserChoice,
    /// Supplementary groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether groups of the image's `/etc/group` are added.
    pub groups_policy: GroupsPolicy,
    /// Whether the container gets all capabilities and devices, and no masked paths.
    pub privileged: bool,
    /// Whether the root file system is read-only.
    pub readonly_rootfs: bool,
    /// Whether `execve` grants no new privileges (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: bool,
    /// Capabilities to add: `CAP_NET_ADMIN`, …, or `ALL`.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop: names or `ALL`.
    pub drop_capabilities: Vec<String>,
    /// Ambient capabilities to add, which a process keeps across `execve` of an ordinary program.
    pub add_ambient_capabilities: Vec<String>,
    /// Seccomp profile.
    pub seccomp: SeccompChoice,
    /// Name of the AppArmor profile; absent: the default profile.
    pub apparmor: Option<String>,
    /// SELinux process label.
    pub selinux_label: Option<String>,
    /// Masked paths, unless privileged; absent: the default list.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths, unless privileged; absent: the default list.
    pub readonly_paths: Option<Vec<String>>,
    /// The PID namespace that it is in.
    pub pid: PidMode,
    /// The network namespace that the request names, which must be the pod's; absent: the pod's.
    #[serde(default)]
    pub network: Option<SharedMode>,
    /// The IPC namespace that the request names, which must be the pod's; absent: the pod's.
    #[serde(default)]
    pub ipc: Option<SharedMode>,
    /// Mappings of the pod's user namespace, which must equal the pod's; absent: no user namespace.
    #[serde(default)]
    pub user_namespace: Option<UserMappings>,
    /// Id of the container whose PID namespace is joined (`TARGET`).
    pub target: Option<String>,
}

/// Configuration of a container: a validated `ContainerConfig` of the CRI.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// Its name in the pod.
    pub name: String,
    /// How many times its creation was attempted before.
    pub attempt: u32,
    /// Name or id of an image that is present on the node.
    pub image: String,
    /// The image as the user specified it, for status.
    pub user_specified_image: String,
    /// Replaces the image's entrypoint (and its arguments).
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    pub args: Vec<String>,
    /// Working directory; absent: that of the image.
    pub working_dir: Option<String>,
    /// Environment variables that are added to the image's or replace those of the same name.
    pub env: Vec<(String, String)>,
    /// Volumes: files and directories of the node, and images.
    pub volumes: Vec<Volume>,
    /// Devices of the node.
    pub devices: Vec<DeviceMapping>,
    /// CDI devices by their fully qualified names, `vendor.com/class=name`, each once.
    #[serde(default)]
    pub cdi_devices: Vec<String>,
    /// Labels of the caller, for selectors.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the caller, stored unchanged.
    pub annotations: BTreeMap<String, String>,
    /// Path of the log, relative to the sandbox's `log_directory`.
    pub log_path: Option<PathBuf>,
    /// Whether standard input is kept open for attached clients.
    pub stdin: bool,
    /// Whether standard input is closed when the first attached client disconnects.
    pub stdin_once: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Resource limits.
    pub resources: oci::Resources,
    /// OOM score adjustment, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Security settings.
    pub security: Security,
    /// The signal that `StopContainer` sends first; absent: the image's, or SIGTERM.
    pub stop_signal: Option<i32>,
    /// For a sandbox container that is a process of the pod's virtual machine: which one. No request sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_process: Option<VmProcess>,
}

/// A process of a virtual machine, in a container of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmProcess {
    /// The virtual machine monitor.
    Hypervisor,
    /// Serves the file systems of the pod's containers.
    FileServer,
}

impl ContainerConfig {
    /// Returns the configuration of a container with the least of everything.
    pub(crate) fn minimal(name: String) -> Self {
        Self {
            name,
            attempt: 0,
            image: String::new(),
            user_specified_image: String::new(),
            command: Vec::new(),
            args: Vec::new(),
            working_dir: None,
            env: Vec::new(),
            volumes: Vec::new(),
            devices: Vec::new(),
            cdi_devices: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            log_path: None,
            stdin: false,
            stdin_once: false,
            tty: false,
            resources: oci::Resources::default(),
            oom_score_adj: 0,
            security: Security {
                user: UserChoice::Image,
                supplemental_groups: Vec::new(),
                groups_policy: GroupsPolicy::Merge,
                privileged: false,
                readonly_rootfs: false,
                no_new_privileges: false,
                add_capabilities: Vec::new(),
                drop_capabilities: Vec::new(),
                add_ambient_capabilities: Vec::new(),
                seccomp: SeccompChoice::RuntimeDefault,
                apparmor: None,
                selinux_label: None,
                masked_paths: None,
                readonly_paths: None,
                pid: PidMode::Container,
                network: None,
                ipc: None,
                user_namespace: None,
                target: None,
            },
            stop_signal: None,
            vm_process: None,
        }
    }

    /// Whether this is the sandbox container of a pod, which no request names and no list contains: its name is empty.
    pub(crate) fn is_sandbox_container(&self) -> bool {
        self.name.is_empty()
    }
}
