use std::collections::BTreeMap;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, state::Directory};

/// Of `state.json`.
pub(crate) const VERSION: u32 = 1;

/// `state.json`: what is known for good when a container was made. Where the kernel can be asked (does it run, is it
/// frozen), the kernel is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Of this file; another one is refused.
    pub(crate) version: u32,
    pub(crate) oci_version: String,
    pub(crate) id: String,
    /// The container's init on the host.
    pub(crate) pid: i32,
    /// Field 22 of proc_pid_stat(5), so that a reused pid is not taken for it.
    pub(crate) start_time: u64,
    /// Absolute.
    pub(crate) bundle: String,
    /// Absolute path of the root on the host.
    pub(crate) rootfs: String,
    /// RFC 3339 with nanoseconds, UTC.
    pub(crate) created: String,
    /// User that made it.
    pub(crate) owner: u32,
    /// Path of its group in the trees (`cgroup::GroupPath`); empty: it has none (`--cgroup-manager disabled`).
    pub(crate) cgroup: String,
    /// Whether it has a PID namespace of its own, so that nothing of it outlives its init.
    #[serde(default)]
    pub(crate) own_pids: bool,
    /// Whether it has a user namespace of its own, which commands enter first.
    #[serde(default)]
    pub(crate) own_users: bool,
    /// Whether it has no mount namespace, so that its mounts are in the host's, below its root.
    #[serde(default)]
    pub(crate) hosts_mounts: bool,
    /// Whether it and its commands have a session keyring of their own.
    #[serde(default)]
    pub(crate) own_keyring: bool,
    /// Its transient unit, where systemd made the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) systemd_unit: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// What exec starts from.
    pub(crate) process: oci::Process,
    /// What update starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<oci::Resources>,
    /// What start (`poststart`) and delete (`poststop`) run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hooks: Option<oci::Hooks>,
    /// `linux.intelRdt`, for what delete has to take away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intel_rdt: Option<oci::IntelRdt>,
    /// `linux.personality`, for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) personality: Option<oci::Personality>,
    /// `linux.memoryPolicy`, for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_policy: Option<oci::MemoryPolicy>,
    /// Socket of the agent that the seccomp filter asks and what it is told, for exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seccomp_agent: Option<[String; 2]>,
}

impl Record {
    /// Whether it is one that this program understands.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.version == VERSION {
            return Ok(());
        }
        Err(Failure::new(format!(
            "state of container {}: has version {}, this program knows {VERSION}; use the pinrun that made it",
            self.id, self.version
        )))
    }

    /// Whether the container is created, running, paused or stopped, as the kernel says.
    pub(crate) fn status(&self, directory: &Directory) -> Result<oci::Status, Failure> {
        if self.init()?.is_none() {
            return Ok(oci::Status::Stopped);
        }
        if self.is_frozen() {
            return Ok(oci::Status::Paused);
        }
        Ok(if directory.is_waiting()? { oci::Status::Created } else { oci::Status::Running })
    }

    /// Whether it is paused: a created container can be, too, and is then resumed before it is started, as with runc.
    pub(crate) fn is_frozen(&self) -> bool {
        // A group that cannot be asked is not frozen: the container must stay removable.
        self.group().and_then(|group| Ok(group.is_frozen()?)).unwrap_or(false)
    }

    /// The pidfd of its init; `None`: it has ended.
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
        // A zombie has ended, too.
        let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&Timespec::default()));
        Ok((ended != Ok(1)).then_some(pidfd))
    }

    /// The same where it must run.
    pub(crate) fn running(&self) -> Result<OwnedFd, Failure> {
        self.init()?.ok_or_else(|| Failure::new(format!("container not running: {}", self.id)))
    }

    /// Its group.
    pub(crate) fn group(&self) -> Result<cgroup::Group, Failure> {
        let trees = cgroup::Hierarchies::open()?;
        if self.cgroup.is_empty() {
            return Ok(cgroup::Group::nowhere(&trees, &cgroup::GroupPath::parse(&format!("/{}", self.id))?));
        }
        let path = cgroup::GroupPath::parse(&self.cgroup)?;
        Ok(match &self.systemd_unit {
            Some(unit) => cgroup::systemd::Unit::open(unit, &trees, &path)?,
            None => cgroup::Group::open(&trees, &path)?,
        })
    }

    /// Its group, or groups below it, which must be there: one `path` for all trees, or any number of
    /// `controller[,controller…]:path`.
    pub(crate) fn group_below(&self, below: &[String]) -> Result<cgroup::Group, Failure> {
        below.iter().try_fold(self.group()?, |group, word| match word.split_once(':') {
            Some((controllers, path)) => {
                Ok(controllers.split(',').try_fold(group, |group, controller| group.below(Some(controller), path))?)
            }
            None if below.len() == 1 => Ok(group.below(None, word)?),
            None => Err(Failure::usage(format!("--cgroup {word:?}: controller: is missing, as there are several"))),
        })
    }

    /// As hooks read it, and `state` prints most of it.
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

/// Field 22 of proc_pid_stat(5); `None`: there is no such process.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let stat = syscall::proc_file::read(&format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; after it comes field 3.
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}
