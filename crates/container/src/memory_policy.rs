//! `linux.memoryPolicy`: the NUMA memory policy of the process.

use syscall::scheduling::set_memory_policy;

use crate::{Error, error::During, spec_string::number_list};

/// Supported modes.
pub(crate) const MODES: [(&str, i32); 7] = [
    ("MPOL_DEFAULT", 0),
    ("MPOL_PREFERRED", 1),
    ("MPOL_BIND", 2),
    ("MPOL_INTERLEAVE", 3),
    ("MPOL_LOCAL", 4),
    ("MPOL_PREFERRED_MANY", 5),
    ("MPOL_WEIGHTED_INTERLEAVE", 6),
];
/// Supported flags.
pub(crate) const FLAGS: [(&str, i32); 3] =
    [("MPOL_F_NUMA_BALANCING", 1 << 13), ("MPOL_F_RELATIVE_NODES", 1 << 14), ("MPOL_F_STATIC_NODES", 1 << 15)];
/// Maximum number of NUMA nodes in the kernel (`MAX_NUMNODES`).
const NODES_MAX: usize = 1024;

/// A checked memory policy: mode and flags, and a bit mask of nodes.
#[derive(Debug)]
pub(crate) struct MemoryPolicy {
    mode: i32,
    nodes: Vec<u64>,
}

impl MemoryPolicy {
    pub(crate) fn parse(policy: &oci::MemoryPolicy) -> Result<Self, Error> {
        let find = |table: &[(&str, i32)], field: &str, name: &str| {
            let value = table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            value.ok_or_else(|| Error::invalid(format!("linux.memoryPolicy.{field}: {name:?} is unknown")))
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

    /// Sets the policy, which is kept over execve. Runs in the child.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        set_memory_policy(self.mode, &self.nodes)
            .during(|| format!("set linux.memoryPolicy (mode {:#x}, nodes {:x?})", self.mode, self.nodes))
    }
}
