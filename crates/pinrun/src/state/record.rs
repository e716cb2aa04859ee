use std::collections::BTreeMap;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::{Deserialize, Serialize};
use syscall::process_stat::ProcessStat;

use crate::failure::Failure;

/// The version of `state.json`.
pub(crate) const VERSION: u32 = 1;

/// `state.json`: the immutable properties of a container. What the kernel knows (whether the container is running or
/// frozen) is read from the kernel instead.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The version of this file; a file of another version is refused.
    pub(crate) version: u32,
    pub(crate) oci_version: String,
    pub(crate) id: String,
    /// The pid of the container's init on the host.
    pub(crate) pid: i32,
    /// The start time of the init (field 22 of proc_pid_stat(5)), to detect a reused pid.
    pub(crate) start_time: u64,
    /// Absolute.
    pub(crate) bundle: String,
    /// Absolute path of the root on the host.
    pub(crate) rootfs: String,
    /// RFC 3339 with nanoseconds, UTC.
    pub(crate) created: String,
    /// The uid of the user that created the container.
    pub(crate) owner: u32,
    /// The path of the cgroup (`cgroup::GroupPath`); empty without one (`--cgroup-manager disabled`).
    pub(crate) cgroup: String,
    /// Whether the container has its own PID namespace, so that no process of it outlives its init.
    #[serde(default)]
    pub(crate) own_pids: bool,
    /// Whether the container has a user namespace, which exec'd processes enter first.
    #[serde(default)]
    pub(crate) own_users: bool,
    /// Whether the container has no mount namespace, so that it is mounted in the host's, below its root.
    #[serde(default)]
    pub(crate) hosts_mounts: bool,
    /// Whether the container and its exec'd processes have their own session keyring.
    #[serde(default)]
    pub(crate) own_keyring: bool,
    /// The transient unit, if systemd created the cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) systemd_unit: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// The process of the spec, on which exec is based.
    pub(crate) process: oci::Process,
    /// The limits that are in effect, on which update is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<oci::Resources>,
    /// The hooks of start (`poststart`) and delete (`poststop`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hooks: Option<oci::Hooks>,
    /// `linux.intelRdt`, whose resctrl group delete removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intel_rdt: Option<oci::IntelRdt>,
    /// `linux.personality`, for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) personality: Option<oci::Personality>,
    /// `linux.memoryPolicy`, for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_policy: Option<oci::MemoryPolicy>,
    /// The socket of the seccomp agent and the metadata sent to it (`listenerPath`, `listenerMetadata`), for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seccomp_agent: Option<[String; 2]>,
}

impl Record {
    /// Checks that this program supports the version of the record.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.version == VERSION {
            return Ok(());
        }
        Err(Failure::new(format!(
            "read the state of container {}: version {} is not supported (only {VERSION}); use the pinrun that created it",
            self.id, self.version
        )))
    }

    /// Reports whether the container is paused. A created container can be paused, too; as with runc, it must be
    /// resumed before it is started.
    pub(crate) fn is_frozen(&self) -> bool {
        // A cgroup whose state cannot be read counts as not frozen, so that the container can be removed.
        self.group().and_then(|group| Ok(group.is_frozen()?)).unwrap_or(false)
    }

    /// Opens a pidfd of the init. Returns `None` if it has exited.
    pub(crate) fn init(&self) -> Result<Option<OwnedFd>, Failure> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(Failure::io(format!("open process {}", self.pid), errno)),
        };
        if start_time(self.pid) != Some(self.start_time) {
            return Ok(None);
        }
        // A zombie has exited, too: its pidfd is readable.
        let exited = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&Timespec::default()));
        Ok((exited != Ok(1)).then_some(pidfd))
    }

    /// Opens a pidfd of the init, which must be running.
    pub(crate) fn running_init(&self) -> Result<OwnedFd, Failure> {
        self.init()?.ok_or_else(|| Failure::new(format!("container not running: {}", self.id)))
    }

    /// Opens the container's cgroup.
    pub(crate) fn group(&self) -> Result<cgroup::Group, Failure> {
        let trees = cgroup::Hierarchies::open()?;
        if self.cgroup.is_empty() {
            return Ok(cgroup::Group::without_directory(&trees, &cgroup::GroupPath::parse(&format!("/{}", self.id))?));
        }
        let path = cgroup::GroupPath::parse(&self.cgroup)?;
        Ok(match &self.systemd_unit {
            Some(unit) => cgroup::systemd::Unit::open(unit, &trees, &path)?,
            None => cgroup::Group::open(&trees, &path)?,
        })
    }

    /// Opens the container's cgroup, or existing cgroups below it: one `path` for all trees, or any number of
    /// `controller[,controller…]:path`.
    pub(crate) fn group_below(&self, below: &[String]) -> Result<cgroup::Group, Failure> {
        below.iter().try_fold(self.group()?, |group, word| match word.split_once(':') {
            Some((controllers, path)) => Ok(controllers
                .split(',')
                .try_fold(group, |group, controller| group.descendant(Some(controller), path))?),
            None if below.len() == 1 => Ok(group.descendant(None, word)?),
            None => Err(Failure::usage(format!("--cgroup {word:?}: CONTROLLER: is required if --cgroup is repeated"))),
        })
    }

    /// Returns the state that hooks read.
    pub(crate) fn state(&self, status: oci::Status) -> oci::State {
        oci::State {
            oci_version: self.oci_version.clone(),
            id: self.id.clone(),
            status,
            pid: if status == oci::Status::Stopped { 0 } else { self.pid },
            bundle: self.bundle.clone(),
            annotations: self.annotations.clone(),
        }
    }
}

/// Returns the start time of a process (field 22 of proc_pid_stat(5)), or `None` if it does not exist.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    Some(ProcessStat::read(Pid::from_raw(pid)?).ok()?.start_time)
}
