use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A runtime under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The runtime of this repository.
    Pinrun,
    /// The reference implementation.
    Runc,
    /// The fastest other runtime.
    Crun,
}

/// Unmounts the v2 tree of a hybrid machine in a new mount namespace, and executes the runtime.
///
/// The mount is made private first, so that the unmount does not propagate to other namespaces.
const WITHOUT_V2: &str = r#"mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified && exec "$0" "$@""#;

impl Runtime {
    /// Returns the name of the runtime, as in the list of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinrun => "pinrun",
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }

    /// Returns the path of the program.
    pub fn program(self) -> PathBuf {
        if let Some(path) = env::var_os(format!("PINION_OCI_{}", self.name().to_uppercase())) {
            return path.into();
        }
        match self {
            Self::Pinrun => testbed::program("pinrun"),
            Self::Runc | Self::Crun => ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
                .iter()
                .map(|directory| PathBuf::from(directory).join(self.name()))
                .find(|path| path.exists())
                .unwrap_or_else(|| panic!("{} is not installed; run scripts/setup test", self.name())),
        }
    }

    /// Returns the version of the specification for `ociVersion` of its bundles.
    pub fn specification(self) -> &'static str {
        match self {
            Self::Pinrun => "1.3.0",
            Self::Runc | Self::Crun => "1.0.2",
        }
    }

    /// Returns a command of the runtime without arguments.
    pub fn command(self) -> Command {
        self.command_for(&self.program())
    }

    /// Returns a command of another copy of the runtime without arguments.
    pub fn command_for(self, program: &Path) -> Command {
        if self == Self::Crun && is_hybrid() {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "unchanged", "sh", "-c", WITHOUT_V2]).arg(program);
            return command;
        }
        Command::new(program)
    }
}

/// Whether both cgroup versions are mounted.
pub(crate) fn is_hybrid() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some("/sys/fs/cgroup/unified"))
}
