use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{PidMode, SharedMode, UserMappings};

/// Which mounts pass between node and container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    Private,
    /// The node's later mounts come in.
    HostToContainer,
    /// And the container's go out.
    Bidirectional,
}

/// An image, or a part of one, as the source of a volume: read-only, and nothing in it is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageVolume {
    /// A name or id of an image that is here.
    pub image: String,
    /// What the caller calls it, for status; empty: nothing else.
    pub image_ref: String,
    /// Relative path of a directory or file in it; empty: its root.
    pub sub_path: PathBuf,
}

/// A file or directory of the node in the container, or an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Absolute, in the container.
    pub container_path: String,
    /// Absolute, on the node; it must exist. Empty where an image is mounted.
    pub host_path: PathBuf,
    /// In place of `host_path`.
    #[serde(default)]
    pub image: Option<ImageVolume>,
    /// `noexec`, `nosuid`, …: words of the runtime specification that say something of a bind mount.
    #[serde(default)]
    pub options: Vec<String>,
    /// User ids that its files show inside (Linux 5.12); empty: as they are.
    #[serde(default)]
    pub uid_mappings: Vec<oci::IdMapping>,
    /// The same for group ids.
    #[serde(default)]
    pub gid_mappings: Vec<oci::IdMapping>,
    /// Its top mount is read-only.
    pub readonly: bool,
    /// And every mount below.
    pub recursive_readonly: bool,
    /// Which mounts pass.
    pub propagation: Propagation,
    /// Whether its files are labelled for the container (SELinux).
    pub selinux_relabel: bool,
}

/// A device of the node in the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceMapping {
    /// Absolute, in the container.
    pub container_path: String,
    /// A device, or a directory of devices.
    pub host_path: PathBuf,
    /// Of `r`, `w`, `m`.
    pub permissions: String,
}

/// Which system calls are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompChoice {
    /// Those of the default profile.
    RuntimeDefault,
    /// All.
    Unconfined,
    /// Those of a profile in this file.
    Localhost(PathBuf),
}

/// Who the process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserChoice {
    /// Whom the image names; nobody: root.
    Image,
    /// By number.
    Uid {
        /// User id.
        uid: i64,
        /// Group id; absent: the user's in `/etc/passwd`, else 0.
        gid: Option<i64>,
    },
    /// By a name in the image's `/etc/passwd`, or `user:group`.
    Name(String),
}

/// What becomes of groups that the image's `/etc/group` gives the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupsPolicy {
    /// They are added.
    Merge,
    /// Only what the request names counts.
    Strict,
}

/// `LinuxContainerSecurityContext`, valid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Security {
    /// Who the process is.
    pub user: UserChoice,
    /// More groups.
    pub supplemental_groups: Vec<i64>,
    /// And those of the image.
    pub groups_policy: GroupsPolicy,
    /// All capabilities and devices, nothing masked.
    pub privileged: bool,
    /// The root cannot be written.
    pub readonly_rootfs: bool,
    /// setuid programs give nothing.
    pub no_new_privileges: bool,
    /// `CAP_NET_ADMIN`, …, or `ALL`.
    pub add_capabilities: Vec<String>,
    /// The same.
    pub drop_capabilities: Vec<String>,
    /// Also given to an ordinary file that is executed.
    pub add_ambient_capabilities: Vec<String>,
    /// System call filter.
    pub seccomp: SeccompChoice,
    /// AppArmor profile.
    pub apparmor: Option<String>,
    /// SELinux process label.
    pub selinux_label: Option<String>,
    /// Hidden paths, unless privileged; absent: the default ones.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths, unless privileged; absent: the default ones.
    pub readonly_paths: Option<Vec<String>>,
    /// Whose processes it sees.
    pub pid: PidMode,
    /// Whose network it asks for, which must be the pod's; absent: the pod's, whichever that is.
    #[serde(default)]
    pub network: Option<SharedMode>,
    /// The same for IPC.
    #[serde(default)]
    pub ipc: Option<SharedMode>,
    /// Maps of the pod's user namespace, which it must have; absent: the node's users.
    #[serde(default)]
    pub user_namespace: Option<UserMappings>,
    /// Container whose PID namespace is joined (`TARGET`).
    pub target: Option<String>,
}

/// `CreateContainer`'s config, valid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// Its name in the pod.
    pub name: String,
    /// How often it was tried before.
    pub attempt: u32,
    /// A name or id of an image that is here.
    pub image: String,
    /// What the user wrote, for status.
    pub user_specified_image: String,
    /// Replaces the image's entry point (and its arguments).
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    pub args: Vec<String>,
    /// Replaces the image's.
    pub working_dir: Option<String>,
    /// Added to the image's, in place of variables of the same name.
    pub env: Vec<(String, String)>,
    /// Files and directories of the node.
    pub volumes: Vec<Volume>,
    /// Devices of the node.
    pub devices: Vec<DeviceMapping>,
    /// CDI devices by their full names, `vendor.com/class=name`, each once.
    #[serde(default)]
    pub cdi_devices: Vec<String>,
    /// The caller's words, to select by.
    pub labels: BTreeMap<String, String>,
    /// The caller's words, to keep.
    pub annotations: BTreeMap<String, String>,
    /// Relative to the sandbox's `log_directory`.
    pub log_path: Option<PathBuf>,
    /// Whether it has a standard input.
    pub stdin: bool,
    /// Whether that ends with the first client.
    pub stdin_once: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Limits.
    pub resources: oci::Resources,
    /// How ready the kernel shall be to end it, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Rights.
    pub security: Security,
    /// What asks it to end; absent: the image's, else SIGTERM.
    pub stop_signal: Option<i32>,
}
