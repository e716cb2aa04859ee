//! `features`: prints the supported features (features.md, features-linux.md), from the tables that the runtime uses.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::{
    arguments::Global,
    command::state::print_json,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
};

pub(crate) fn run(_global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    if let Some(word) = flags.words.first() {
        return Err(Failure::usage(format!("unexpected argument {word:?}: features takes no arguments")));
    }
    print_json(&features())?;
    Ok(ExitCode::SUCCESS)
}

fn features() -> Value {
    let [modes, flags] = container::memory_policy_names();
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": "1.3.0",
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": container::mount_options(),
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": oci::CAPABILITIES.as_slice(),
            "cgroup": {"v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true},
            "seccomp": seccomp(),
            "apparmor": {"enabled": true},
            "selinux": {"enabled": true},
            "intelRdt": {"enabled": true, "schemata": true, "monitoring": true},
            "memoryPolicy": {"modes": modes, "flags": flags},
            "mountExtensions": {"idmap": {"enabled": true}},
            "netDevices": {"enabled": true},
        },
        "annotations": {
            "io.pinion.pinrun.version": env!("CARGO_PKG_VERSION"),
            "io.pinion.pinrun.checkpoint.enabled": "true",
        },
        "potentiallyUnsafeConfigAnnotations": ["org.criu.config", "org.systemd.property.", "run.oci."],
    })
}

fn seccomp() -> Value {
    use seccomp::supported::{ACTIONS, FLAGS, OPERATORS, architectures};
    json!({
        "enabled": true,
        "actions": ACTIONS,
        "operators": OPERATORS,
        "archs": architectures().collect::<Vec<_>>(),
        "knownFlags": FLAGS,
        "supportedFlags": FLAGS,
    })
}
