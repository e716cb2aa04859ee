use std::{
    fs, io,
    path::{Path, PathBuf},
};

const ROOT: &str = "/sys/fs/cgroup";

/// Limits of a pod's cgroup, as kubelet sets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodLimits {
    /// Most processes and threads (kubelet's `podPidsLimit`).
    pub(crate) pids: u32,
    /// Most memory in bytes.
    pub(crate) memory: u64,
    /// CPU time in microseconds per 100 ms.
    pub(crate) cpu_quota: u32,
    /// CPU shares: 2 for a best-effort pod, 1024 for one that requests a processor.
    pub(crate) cpu_shares: u32,
}

/// Makes a pod's cgroup below the node's, in every hierarchy, as kubelet does before RunPodSandbox; returns the
/// `cgroup_parent` for the pod.
///
/// # Errors
/// If a directory cannot be made or a limit cannot be set.
pub(crate) fn make(node_parent: &str, pod: &str, limits: PodLimits) -> io::Result<String> {
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
            // A tree of another controller.
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

/// Removes a pod's cgroup; returns the paths of groups below that somebody left there, which it also removes if it can.
pub(crate) fn remove(parent: &str) -> Vec<PathBuf> {
    let mut leaked = Vec::new();
    for group in paths(parent) {
        if fs::remove_dir(&group).is_err() && group.exists() {
            leaked.extend(below(&group));
            let _ = std::process::Command::new("find")
                .arg(&group)
                .args(["-depth", "-type", "d", "-delete"])
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
    leaked
}

/// Thaws a node's groups when it is dropped: a frozen process outlives its PID namespace's end. Drop it before the
/// node.
#[derive(Debug)]
pub(crate) struct ThawAtEnd(pub(crate) String);

impl Drop for ThawAtEnd {
    fn drop(&mut self) {
        // Killed first: a thawed attacker would freeze itself again.
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
    for inner in below(group) {
        kill(&inner);
    }
}

fn thaw(group: &Path) {
    let _ = fs::write(group.join("freezer.state"), "THAWED");
    let _ = fs::write(group.join("cgroup.freeze"), "0");
    for inner in below(group) {
        thaw(&inner);
    }
}

/// Whether any group below a pod's is left.
pub(crate) fn has_children(parent: &str) -> bool {
    paths(parent).iter().any(|group| !below(group).is_empty())
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// The directory of a group in every hierarchy.
pub(crate) fn paths(group: &str) -> Vec<PathBuf> {
    if is_unified() {
        return vec![PathBuf::from(format!("{ROOT}{group}"))];
    }
    let trees = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut trees: Vec<PathBuf> = trees.filter(|path| path.join("cgroup.procs").exists()).collect();
    // `cpu` may be a link to `cpu,cpuacct`.
    trees = trees.into_iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    trees.sort();
    trees.dedup();
    trees.into_iter().map(|tree| tree.join(group.trim_start_matches('/'))).collect()
}
