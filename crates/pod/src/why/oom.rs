//! Whose memory limit a container met.

use serde::Serialize;

use cgroup::{Group, GroupPath};

use super::kernel_log::field;
use crate::{
    container::{Container, ContainerRecord},
    engine::Inner,
};

/// Whose limit it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OomLimit {
    /// The container's own.
    Container,
    /// Its pod's.
    Pod,
    /// That of a group above the pod.
    Above,
    /// None: the node had no memory left.
    Node,
    /// The kernel does not tell (any more).
    Unknown,
}

/// A process of the container was killed, because there was no memory.
#[derive(Clone, Debug, Serialize)]
pub struct Oom {
    /// Whose limit it was.
    pub limit: OomLimit,
    /// The group that has the limit, where that is known.
    pub group: Option<String>,
    /// How many processes were killed, as far as the group still tells.
    pub killed: u64,
    /// The kernel's own line.
    pub line: Option<String>,
}

pub(super) fn of(engine: &Inner, container: &Container, record: &ContainerRecord, log: &[String]) -> Option<Oom> {
    let group = container.group(engine).ok();
    let killed = group.map_or(0, |group| group.oom_kills());
    if record.reason != "OOMKilled" && killed == 0 {
        return None;
    }
    let pod = GroupPath::parse(&container.metadata.cgroup).ok().and_then(|path| path.parent());
    if let Some((limit, group, line)) = log.iter().rev().find_map(|line| of_line(line, container.id(), pod.as_ref())) {
        return Some(Oom { limit, group, killed, line: Some(line) });
    }
    // The log was overwritten, or cannot be read: who met its own limit tells.
    let above = pod.as_ref().and_then(|path| Group::open(&engine.trees, path).ok());
    let (limit, path) = if group.is_some_and(|group| group.own_limit_met() > 0) {
        (OomLimit::Container, Some(container.metadata.cgroup.clone()))
    } else if above.is_some_and(|group| group.own_limit_met() > 0) {
        (OomLimit::Pod, pod.map(|path| path.as_str().to_owned()))
    } else {
        (OomLimit::Unknown, None)
    };
    Some(Oom { limit, group: path, killed, line: None })
}

/// `oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/…,task_memcg=/…,task=…,pid=…,uid=…` (kernel 4.20).
fn of_line(line: &str, id: &str, pod: Option<&GroupPath>) -> Option<(OomLimit, Option<String>, String)> {
    let rest = line.strip_prefix("oom-kill:")?;
    if !field(rest, "task_memcg")?.contains(id) {
        return None;
    }
    let (limit, group) = match (field(rest, "constraint")?, field(rest, "oom_memcg")) {
        ("CONSTRAINT_MEMCG", Some(group)) if group.contains(id) => (OomLimit::Container, Some(group)),
        // As the kernel sees it: below where this program's own view of the tree begins.
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
    fn the_kernels_line_names_the_group() {
        let pod = GroupPath::parse("/pinion/p1").expect("path");
        let told = |constraint: &str, memcg: &str| {
            let line = format!(
                "oom-kill:constraint={constraint},nodemask=(null),cpuset=c,mems_allowed=0{memcg},\
                 task_memcg=/pinion/p1/c1,task=sh,pid=5,uid=0"
            );
            of_line(&line, "c1", Some(&pod)).map(|(limit, ..)| limit)
        };
        assert_eq!(told("CONSTRAINT_MEMCG", ",oom_memcg=/pinion/p1/c1"), Some(OomLimit::Container));
        assert_eq!(told("CONSTRAINT_MEMCG", ",oom_memcg=/pinion/p1"), Some(OomLimit::Pod));
        assert_eq!(told("CONSTRAINT_MEMCG", ",oom_memcg=/pinion"), Some(OomLimit::Above));
        assert_eq!(told("CONSTRAINT_NONE", ",global_oom"), Some(OomLimit::Node));
        assert_eq!(of_line("oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/other", "c1", None), None);
    }
}
