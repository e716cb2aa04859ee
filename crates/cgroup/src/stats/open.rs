//! Opens the statistics files of a group: which of them exist depends on the versions of the trees.

use crate::{
    Error, Group,
    controller::Controller,
    stat_readers::{Reader, Readers},
    tree::Tree,
};

const V1_IO: [&str; 2] = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];
const V1_OPERATIONS: [&str; 2] = ["blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"];

impl Readers {
    pub(super) fn open(group: &Group) -> Result<Self, Error> {
        let v2 = |controller| group.trees.with(controller).is_none_or(|tree| tree.v2);
        // v2 counts CPU time in every group, with or without the controller; in a hybrid layout the v1 tree is used.
        let cpu_v2 = v2(Controller::Cpuacct) && v2(Controller::Cpu);
        let (memory_v2, io_v2) = (v2(Controller::Memory), v2(Controller::Blkio));
        let open_if = |condition: bool, controller: Controller, files: &[&str]| match condition {
            true => open(group, Reader::tree(&group.trees, controller), files),
            false => Ok(Reader::default()),
        };
        // Every group of the v2 tree has pressure files, with or without controllers (Linux 4.20; 5.2 for cgroups).
        let pressure = |file| open(group, group.trees.v2(), &[file]);
        Ok(Self {
            cpu_v2,
            memory_v2,
            io_v2,
            cpu_stat: open_if(true, Controller::Cpu, &["cpu.stat"])?,
            cpuacct_usage: open_if(!cpu_v2, Controller::Cpuacct, &["cpuacct.usage"])?,
            cpuacct_stat: open_if(!cpu_v2, Controller::Cpuacct, &["cpuacct.stat"])?,
            memory_usage: open_if(true, Controller::Memory, &["memory.current", "memory.usage_in_bytes"])?,
            memory_stat: open_if(true, Controller::Memory, &["memory.stat"])?,
            memory_max: open_if(memory_v2, Controller::Memory, &["memory.max"])?,
            swap_usage: open_if(memory_v2, Controller::Memory, &["memory.swap.current"])?,
            swap_max: open_if(memory_v2, Controller::Memory, &["memory.swap.max"])?,
            pids_usage: open_if(true, Controller::Pids, &["pids.current"])?,
            pids_max: open_if(true, Controller::Pids, &["pids.max"])?,
            io_bytes: open_if(true, Controller::Blkio, if io_v2 { &["io.stat"] } else { &V1_IO })?,
            io_operations: open_if(!io_v2, Controller::Blkio, &V1_OPERATIONS)?,
            cpu_pressure: pressure("cpu.pressure")?,
            memory_pressure: pressure("memory.pressure")?,
            io_pressure: pressure("io.pressure")?,
        })
    }
}

/// Opens the first of the files that exists in a tree.
fn open(group: &Group, tree: Option<&Tree>, files: &[&str]) -> Result<Reader, Error> {
    Reader::open(tree.map(|tree| (tree, group.path_in(tree))), files)
}
