use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A runtime under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Ours.
    Pinrun,
    /// The reference.
    Runc,
    /// The fastest peer.
    Crun,
}

/// Takes the version 2 tree of a hybrid machine away, in a mount namespace of its own, and becomes the runtime.
///
/// The tree is made private before: the removal must reach no other namespace.
const WITHOUT_V2: &str = r#"mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified && exec "$0" "$@""#;

impl Runtime {
    /// Its name, as in the list of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinrun => "pinrun",
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }

    /// The program itself.
    pub fn program(self) -> PathBuf {
        if let Some(path) = env::var_os(format!("PINION_OCI_{}", self.name().to_uppercase())) {
            return path.into();
        }
        match self {
            Self::Pinrun => {
                let directory =
                    env::var_os("PINION_BIN").expect("PINION_BIN: the directory with pinrun (scripts/build dev DIR)");
                PathBuf::from(directory).join("pinrun")
            }
            Self::Runc | Self::Crun => ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
                .iter()
                .map(|directory| PathBuf::from(directory).join(self.name()))
                .find(|path| path.exists())
                .unwrap_or_else(|| panic!("{} is not installed: scripts/setup test", self.name())),
        }
    }

    /// The version of the specification that its bundles name.
    pub fn specification(self) -> &'static str {
        match self {
            Self::Pinrun => "1.3.0",
            Self::Runc | Self::Crun => "1.0.2",
        }
    }

    /// A call of it, without arguments yet.
    pub fn command(self) -> Command {
        self.command_of(&self.program())
    }

    /// A call of another copy of it.
    pub fn command_of(self, program: &Path) -> Command {
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
