//! `linux.memoryPolicy`.

use syscall::scheduling::set_memory_policy;

use crate::{Error, error::During, text::number_list};

/// Modes that are known.
pub(crate) const MODES: [(&str, i32); 7] = [
    ("MPOL_DEFAULT", 0),
    ("MPOL_PREFERRED", 1),
    ("MPOL_BIND", 2),
    ("MPOL_INTERLEAVE", 3),
    ("MPOL_LOCAL", 4),
    ("MPOL_PREFERRED_MANY", 5),
    ("MPOL_WEIGHTED_INTERLEAVE", 6),
];
/// Flags that are known.
pub(crate) const FLAGS: [(&str, i32); 3] =
    [("MPOL_F_NUMA_BALANCING", 1 << 13), ("MPOL_F_RELATIVE_NODES", 1 << 14), ("MPOL_F_STATIC_NODES", 1 << 15)];
/// The kernel's own bound (`MAX_NUMNODES`).
const NODES_MAX: usize = 1024;

/// Where a process's memory comes from.
#[derive(Debug)]
pub(crate) struct MemoryPolicy {
    mode: i32,
    nodes: Vec<u64>,
}

impl MemoryPolicy {
    pub(crate) fn parse(policy: &oci::MemoryPolicy) -> Result<Self, Error> {
        let find = |table: &[(&str, i32)], field: &str, name: &str| {
            let found = table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            found.ok_or_else(|| Error::invalid(format!("linux.memoryPolicy.{field}: {name:?} is unknown")))
        };
        let mut mode = find(&MODES, "mode", &policy.mode)?;
        for flag in &policy.flags {
            mode |= find(&FLAGS, "flags", flag)?;
        }
        let mut nodes = Vec::new();
        if !policy.nodes.is_empty() {
            for node in number_list("linux.memoryPolicy.nodes", &policy.nodes, NODES_MAX)? {
                nodes.resize(nodes.len().max(node / 64 + 1), 0);
                nodes[node / 64] |= 1 << (node % 64);
            }
        }
        Ok(Self { mode, nodes })
    }

    /// In the child; execve keeps it.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        set_memory_policy(self.mode, &self.nodes)
            .during(|| format!("set linux.memoryPolicy (mode {:#x}, nodes {:x?})", self.mode, self.nodes))
    }
}
