use prost::Message;
use serde::{Deserialize, Serialize};

use crate::messages::{Any, RuncOptions, RuntimeOptions};

/// Options of a shim, which it gets at its start and with each container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Options {
    /// `containerd.runc.v1.Options`, of `containerd-shim-runc-v2`.
    Runc {
        /// Path of the OCI runtime; empty: `runc` in `PATH`.
        binary_name: String,
        /// Directory of the runtime's state; empty: `/run/containerd/runc`.
        root: String,
        /// Whether the runtime has systemd make the cgroups.
        systemd_cgroup: bool,
        /// Whether the runtime moves the root instead of pivoting.
        no_pivot_root: bool,
        /// Whether containers get no session keyring of their own.
        no_new_keyring: bool,
        /// Cgroup of the shim; empty: that of its parent.
        shim_cgroup: String,
        /// Owner of the pipes of containers.
        io_uid: u32,
        /// Group of the pipes of containers.
        io_gid: u32,
        /// Path of `criu`'s images; empty: the default.
        criu_image_path: String,
        /// Path of `criu`'s working directory; empty: the default.
        criu_work_path: String,
    },
    /// `runtimeoptions.v1.Options`, of gVisor's, Kata's and runwasi's shims.
    Runtime {
        /// Type of the configuration, for example `io.containerd.runsc.v1.options`.
        type_url: String,
        /// Path of a configuration file; empty: none.
        config_path: String,
        /// The configuration itself, in place of a file.
        config_body: String,
    },
}

impl Options {
    /// Encodes the options as a shim expects them.
    pub(crate) fn to_any(&self) -> Any {
        match self.clone() {
            Self::Runc {
                binary_name,
                root,
                systemd_cgroup,
                no_pivot_root,
                no_new_keyring,
                shim_cgroup,
                io_uid,
                io_gid,
                criu_image_path,
                criu_work_path,
            } => Any {
                type_url: "containerd.runc.v1.Options".to_owned(),
                value: RuncOptions {
                    no_pivot_root,
                    no_new_keyring,
                    shim_cgroup,
                    io_uid,
                    io_gid,
                    binary_name,
                    root,
                    systemd_cgroup,
                    criu_image_path,
                    criu_work_path,
                }
                .encode_to_vec(),
            },
            Self::Runtime { type_url, config_path, config_body } => Any {
                type_url: "runtimeoptions.v1.Options".to_owned(),
                value: RuntimeOptions { type_url, config_path, config_body: config_body.into_bytes() }.encode_to_vec(),
            },
        }
    }
}
