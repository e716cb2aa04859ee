use std::{
    fs, io,
    path::{Path, PathBuf},
};

const ROOT: &str = "/sys/fs/cgroup";

/// Limits of the cgroup of a pod, as the kubelet sets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodLimits {
    /// Maximum number of processes and threads (`podPidsLimit` of the kubelet).
    pub(crate) pids: u32,
    /// Memory limit in bytes.
    pub(crate) memory: u64,
    /// CPU quota in microseconds per 100 ms.
    pub(crate) cpu_quota: u32,
    /// CPU shares: 2 for a best-effort pod, 1024 for one that requests one CPU.
    pub(crate) cpu_shares: u32,
}

/// Creates the cgroup of a pod below that of the node, in every hierarchy, as the kubelet does before RunPodSandbox.
/// Returns the `cgroup_parent` for the pod.
///
/// # Errors
/// If a directory cannot be created or a limit cannot be set.
pub(crate) fn create(node_parent: &str, pod: &str, limits: PodLimits) -> io::Result<String> {
    let parent = format!("{node_parent}/{pod}");
    let unified = is_unified();
    if unified {
        for group in [ROOT.to_owned(), format!("{ROOT}{node_parent}")] {
            fs::create_dir_all(&group)?;
            fs::write(format!("{group}/cgroup.subtree_control"), "+cpu +memory +pids")?;
        }
    }
    for group in paths(&parent) {
        fs::create_dir_all(&group)?;
        let set = |file: &str, text: String| match fs::write(group.join(file), text) {
            // The hierarchy is of another controller.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(()),
            other => other,
        };
        set("pids.max", limits.pids.to_string())?;
        if unified {
            set("memory.max", limits.memory.to_string())?;
            set("cpu.max", format!("{} 100000", limits.cpu_quota))?;
            set("cpu.weight", (1 + limits.cpu_shares * 99 / 2604).to_string())?;
        } else {
            set("memory.limit_in_bytes", limits.memory.to_string())?;
            set("cpu.cfs_quota_us", limits.cpu_quota.to_string())?;
            set("cpu.shares", limits.cpu_shares.to_string())?;
        }
    }
    Ok(parent)
}

/// Removes the cgroup of a pod. Returns the paths of leaked child cgroups, and removes them, too, if possible.
pub(crate) fn remove(parent: &str) -> Vec<PathBuf> {
    let mut leaked = Vec::new();
    for group in paths(parent) {
        if fs::remove_dir(&group).is_err() && group.exists() {
            leaked.extend(children(&group));
            let _ = std::process::Command::new("find")
                .arg(&group)
                .args(["-depth", "-type", "d", "-delete"])
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
    leaked
}

/// A guard that thaws the cgroups of a node when it is dropped, because a frozen process survives the end of its PID
/// namespace. Must be dropped before the node.
#[derive(Debug)]
pub(crate) struct ThawOnDrop(pub(crate) String);

impl Drop for ThawOnDrop {
    fn drop(&mut self) {
        // The processes are killed first, because a thawed attacker would freeze itself again.
        for group in paths(&self.0) {
            kill(&group);
        }
        for group in paths(&self.0) {
            thaw(&group);
        }
    }
}

fn kill(group: &Path) {
    for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
    }
    for inner in children(group) {
        kill(&inner);
    }
}

fn thaw(group: &Path) {
    let _ = fs::write(group.join("freezer.state"), "THAWED");
    let _ = fs::write(group.join("cgroup.freeze"), "0");
    for inner in children(group) {
        thaw(&inner);
    }
}

/// Whether the cgroup of a pod has child cgroups.
pub(crate) fn has_children(parent: &str) -> bool {
    paths(parent).iter().any(|group| !children(group).is_empty())
}

fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Returns the directory of a cgroup in every hierarchy.
pub(crate) fn paths(group: &str) -> Vec<PathBuf> {
    if is_unified() {
        return vec![PathBuf::from(format!("{ROOT}{group}"))];
    }
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut roots: Vec<PathBuf> = entries.filter(|path| path.join("cgroup.procs").exists()).collect();
    // `cpu` may be a link to `cpu,cpuacct`.
    roots = roots.into_iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    roots.sort();
    roots.dedup();
    roots.into_iter().map(|root| root.join(group.trim_start_matches('/'))).collect()
}
