//! Keeps the statistics files of a group open, so that reading costs one pread per file, whatever the size of the tree.
//! `stats/open.rs` opens them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::{
    fd::OwnedFd,
    fs::OFlags,
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::{
    Error, GroupPath, Hierarchies,
    controller::Controller,
    tree::{Tree, read_all},
};

/// The number of files that all groups of this process keep open.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// The files of [`Stats`](crate::Stats).
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) cpu_v2: bool,
    pub(crate) memory_v2: bool,
    pub(crate) io_v2: bool,
    pub(crate) cpu_stat: Reader,
    pub(crate) cpuacct_usage: Reader,
    pub(crate) cpuacct_stat: Reader,
    pub(crate) memory_usage: Reader,
    pub(crate) memory_stat: Reader,
    pub(crate) memory_max: Reader,
    pub(crate) swap_usage: Reader,
    pub(crate) swap_max: Reader,
    pub(crate) pids_usage: Reader,
    pub(crate) pids_max: Reader,
    pub(crate) io_bytes: Reader,
    pub(crate) io_operations: Reader,
    pub(crate) cpu_pressure: Reader,
    pub(crate) memory_pressure: Reader,
    pub(crate) io_pressure: Reader,
}

/// One file, or no file if the machine does not have it.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    open: Option<CountedFd>,
    /// A controller of the tree, whether the tree is v2, and the path, if the file is opened for each read.
    reopened: Option<(Controller, bool, String)>,
}

impl Reader {
    /// Opens the first of the files that exists in a tree, at this path.
    pub(crate) fn open(location: Option<(&Tree, &GroupPath)>, files: &[&str]) -> Result<Self, Error> {
        let Some((tree, group)) = location else { return Ok(Self::default()) };
        for file in files {
            let path = format!("{}/{file}", group.relative());
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
    pub(crate) fn tree(trees: &Hierarchies, controller: Controller) -> Option<&Tree> {
        trees.with(controller).or_else(|| trees.v2())
    }

    /// Reads the file and passes its text to `parse`; an empty text if the file does not exist. `group` is named in
    /// errors.
    pub(crate) fn read<T>(
        &self,
        trees: &Hierarchies,
        group: &GroupPath,
        parse: impl FnOnce(&str) -> T,
    ) -> Result<T, Error> {
        let failed = |errno| match errno {
            Errno::NODEV | Errno::NOENT => Error::Missing { path: group.to_string(), tree: "stats".into() },
            errno => Error::io("read statistics of", group.to_string(), errno),
        };
        match (&self.open, &self.reopened) {
            (Some(fd), _) => read_short(&fd.0, parse).map_err(failed),
            (None, Some((controller, v2, path))) => {
                let tree = if *v2 { trees.v2() } else { Self::tree(trees, *controller) };
                let Some(tree) = tree else { return Ok(parse("")) };
                let file = tree.open(path, OFlags::RDONLY).map_err(failed)?;
                read_short(&file, parse).map_err(failed)
            }
            (None, None) => Ok(parse("")),
        }
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
