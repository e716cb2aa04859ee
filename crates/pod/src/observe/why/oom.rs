//! The memory limit that a container reached.

use cgroup::{Group, GroupPath};

use super::kernel_log::field;
use crate::{
    node::Node,
    store::{Container, ContainerRecord},
};

/// Owner of a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomLimit {
    /// The container.
    Container,
    /// Its pod.
    Pod,
    /// A cgroup above the pod.
    Above,
    /// No limit: the node was out of memory.
    Node,
    /// The kernel does not report it (anymore).
    Unknown,
}

/// A kill of a process of a container by the OOM killer.
#[derive(Clone, Debug)]
pub struct OomKill {
    /// Owner of the limit that was reached.
    pub limit: OomLimit,
    /// The cgroup with the limit, if it is known.
    pub group: Option<String>,
    /// Number of processes that were killed, as far as the cgroup still exists.
    pub killed: u64,
    /// The message of the kernel.
    pub line: Option<String>,
}

pub(super) fn find_oom_kill(
    node: &Node,
    container: &Container,
    record: &ContainerRecord,
    log: &[String],
) -> Option<OomKill> {
    let group = container.group(&node.trees).ok();
    let killed = group.map_or(0, |group| group.oom_kills());
    if !record.is_oom_killed() && killed == 0 {
        return None;
    }
    let pod = GroupPath::parse(&container.cgroup()).ok().and_then(|path| path.parent());
    if let Some((limit, group, line)) =
        log.iter().rev().find_map(|line| parse(line, container.id().as_str(), pod.as_ref()))
    {
        return Some(OomKill { limit, group, killed, line: Some(line) });
    }
    // The message was overwritten, or the log cannot be read: the cgroups count how often they reached their own limit.
    let above = pod.as_ref().and_then(|path| Group::open(&node.trees, path).ok());
    let (limit, path) = if group.is_some_and(|group| group.memory_limit_hits() > 0) {
        (OomLimit::Container, Some(container.cgroup()))
    } else if above.is_some_and(|group| group.memory_limit_hits() > 0) {
        (OomLimit::Pod, pod.map(|path| path.as_str().to_owned()))
    } else {
        (OomLimit::Unknown, None)
    };
    Some(OomKill { limit, group: path, killed, line: None })
}

/// Parses `oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/…,task_memcg=/…,task=…,pid=…,uid=…` (Linux 4.20).
fn parse(line: &str, id: &str, pod: Option<&GroupPath>) -> Option<(OomLimit, Option<String>, String)> {
    let rest = line.strip_prefix("oom-kill:")?;
    if !field(rest, "task_memcg")?.contains(id) {
        return None;
    }
    let (limit, group) = match (field(rest, "constraint")?, field(rest, "oom_memcg")) {
        ("CONSTRAINT_MEMCG", Some(group)) if group.contains(id) => (OomLimit::Container, Some(group)),
        // The kernel reports paths from the root, this program's view of the tree may begin further below.
        ("CONSTRAINT_MEMCG", Some(group)) if pod.is_some_and(|pod| group.ends_with(pod.as_str())) => {
            (OomLimit::Pod, Some(group))
        }
        ("CONSTRAINT_MEMCG", group) => (OomLimit::Above, group),
        _ => (OomLimit::Node, None),
    };
    Some((limit, group.map(str::to_owned), line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_kernel_names_the_cgroup() {
        let pod = GroupPath::parse("/pinion/p1").expect("path");
        let limit = |constraint: &str, memcg: &str| {
            let line = format!(
                "oom-kill:constraint={constraint},nodemask=(null),cpuset=c,mems_allowed=0{memcg},\
                 task_memcg=/pinion/p1/c1,task=sh,pid=5,uid=0"
            );
            parse(&line, "c1", Some(&pod)).map(|(limit, ..)| limit)
        };
        assert_eq!(limit("CONSTRAINT_MEMCG", ",oom_memcg=/pinion/p1/c1"), Some(OomLimit::Container));
        assert_eq!(limit("CONSTRAINT_MEMCG", ",oom_memcg=/pinion/p1"), Some(OomLimit::Pod));
        assert_eq!(limit("CONSTRAINT_MEMCG", ",oom_memcg=/pinion"), Some(OomLimit::Above));
        assert_eq!(limit("CONSTRAINT_NONE", ",global_oom"), Some(OomLimit::Node));
        assert_eq!(parse("oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/other", "c1", None), None);
    }
}
