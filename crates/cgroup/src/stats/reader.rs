//! Keeps the statistics files of a group open, so that reading costs one pread per file, whatever the size of the tree.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::{
    fd::OwnedFd,
    fs::OFlags,
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::{
    Error, Group,
    controller::Controller,
    tree::{Tree, read_all},
};

/// The number of files that all groups of this process keep open.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// The files of [`Stats`](super::Stats).
#[derive(Debug)]
pub(crate) struct Readers {
    pub(super) cpu_v2: bool,
    pub(super) memory_v2: bool,
    pub(super) io_v2: bool,
    pub(super) cpu_stat: Reader,
    pub(super) cpuacct_usage: Reader,
    pub(super) cpuacct_stat: Reader,
    pub(super) memory_usage: Reader,
    pub(super) memory_stat: Reader,
    pub(super) memory_max: Reader,
    pub(super) swap_usage: Reader,
    pub(super) swap_max: Reader,
    pub(super) pids_usage: Reader,
    pub(super) pids_max: Reader,
    pub(super) io_bytes: Reader,
    pub(super) io_operations: Reader,
    pub(super) cpu_pressure: Reader,
    pub(super) memory_pressure: Reader,
    pub(super) io_pressure: Reader,
}

const V1_IO: [&str; 2] = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];
const V1_OPERATIONS: [&str; 2] = ["blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"];

impl Readers {
    pub(super) fn open(group: &Group) -> Result<Self, Error> {
        let v2 = |controller| group.trees.with(controller).is_none_or(|tree| tree.v2);
        // v2 counts CPU time in every group, with or without the controller; in a hybrid layout the v1 tree is used.
        let cpu_v2 = v2(Controller::Cpuacct) && v2(Controller::Cpu);
        let (memory_v2, io_v2) = (v2(Controller::Memory), v2(Controller::Blkio));
        let open_if = |condition: bool, controller: Controller, files: &[&str]| match condition {
            true => Reader::open(group, Reader::tree(group, controller), files),
            false => Ok(Reader::default()),
        };
        // Every group of the v2 tree has pressure files, with or without controllers (Linux 4.20; 5.2 for cgroups).
        let pressure = |file| Reader::open(group, group.trees.v2(), &[file]);
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

/// One file, or no file if the machine does not have it.
#[derive(Debug, Default)]
pub(super) struct Reader {
    open: Option<CountedFd>,
    /// A controller of the tree, whether the tree is v2, and the path, if the file is opened for each read.
    reopened: Option<(Controller, bool, String)>,
}

impl Reader {
    fn open(group: &Group, tree: Option<&Tree>, files: &[&str]) -> Result<Self, Error> {
        let Some(tree) = tree else { return Ok(Self::default()) };
        for file in files {
            let path = group.file(tree, file);
            match tree.open(&path, OFlags::RDONLY) {
                Ok(fd) => {
                    return Ok(match CountedFd::within_budget(fd) {
                        Some(fd) => Self { open: Some(fd), reopened: None },
                        None => Self::reopened(tree, path),
                    });
                }
                Err(Errno::NOENT) => {}
                Err(Errno::MFILE | Errno::NFILE) => return Ok(Self::reopened(tree, path)),
                Err(errno) => return Err(Error::io("open", tree.describe(&path), errno)),
            }
        }
        Ok(Self::default())
    }

    fn reopened(tree: &Tree, path: String) -> Self {
        let controller = tree.controllers.iter().next().unwrap_or(Controller::Cpuacct);
        Self { open: None, reopened: Some((controller, tree.v2, path)) }
    }

    /// Returns the tree of a controller, else the v2 tree, which has CPU time in every group.
    fn tree(group: &Group, controller: Controller) -> Option<&Tree> {
        group.trees.with(controller).or_else(|| group.trees.v2())
    }

    /// Reads the file and passes its text to `parse`; an empty text if the file does not exist.
    pub(super) fn read<T>(&self, group: &Group, parse: impl FnOnce(&str) -> T) -> Result<T, Error> {
        let failed = |errno| match errno {
            Errno::NODEV | Errno::NOENT => Error::Missing { path: group.path.to_string(), tree: "stats".into() },
            errno => Error::io("read statistics of", group.path.to_string(), errno),
        };
        match (&self.open, &self.reopened) {
            (Some(fd), _) => read_short(&fd.0, parse).map_err(failed),
            (None, Some((controller, v2, path))) => {
                let tree = if *v2 { group.trees.v2() } else { Self::tree(group, *controller) };
                let Some(tree) = tree else { return Ok(parse("")) };
                let file = tree.open(path, OFlags::RDONLY).map_err(failed)?;
                read_short(&file, parse).map_err(failed)
            }
            (None, None) => Ok(parse("")),
        }
    }

    pub(super) fn number(&self, group: &Group) -> Result<Option<u64>, Error> {
        self.read(group, |text| text.trim().parse().ok())
    }
}

/// Reads a file that nearly always fits into one page, so that one read is enough.
fn read_short<T>(file: &OwnedFd, parse: impl FnOnce(&str) -> T) -> Result<T, Errno> {
    let mut page = [0; 4096];
    let length = loop {
        match rustix::io::pread(file, &mut page, 0) {
            Err(Errno::INTR) => {}
            // PSI is disabled on the kernel command line, or the file is not supported in a root cgroup.
            Err(Errno::OPNOTSUPP) => break 0,
            read => break read?,
        }
    };
    if length == page.len() {
        return read_all(file).map(|text| parse(&text));
    }
    Ok(parse(std::str::from_utf8(&page[..length]).unwrap_or_default()))
}

/// A descriptor that counts against the budget: files for statistics use at most half of RLIMIT_NOFILE, since new
/// containers need descriptors, too.
#[derive(Debug)]
struct CountedFd(OwnedFd);

impl CountedFd {
    fn within_budget(fd: OwnedFd) -> Option<Self> {
        let budget = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize / 2);
        if OPEN_FILES.fetch_add(1, Ordering::Relaxed) >= budget {
            OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(fd))
    }
}

impl Drop for CountedFd {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}
