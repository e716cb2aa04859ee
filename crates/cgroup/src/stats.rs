use std::collections::BTreeMap;

use rustix::{fd::OwnedFd, fs::OFlags, io::Errno};

use crate::{
    Error, Group,
    controller::Controller,
    tree::{Tree, read_all},
};

/// What a group used and may use. What the machine cannot tell (no controller) is 0 or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time of all processes so far, ns.
    pub cpu_usage_ns: u64,
    /// Of this in user mode, ns.
    pub cpu_user_ns: u64,
    /// Of this in the kernel, ns.
    pub cpu_system_ns: u64,
    /// Periods of the CPU quota so far.
    pub cpu_periods: u64,
    /// Of these, how many ended throttled.
    pub cpu_throttled_periods: u64,
    /// Time throttled, ns.
    pub cpu_throttled_ns: u64,
    /// Memory in use with page cache, bytes.
    pub memory_usage: u64,
    /// Memory in use without the page cache that can go at once (`inactive_file`), bytes; what kubelet evicts by.
    pub memory_working_set: u64,
    /// Anonymous memory, bytes.
    pub memory_rss: u64,
    /// Limit of memory, bytes; on v1 the lowest on the way to the root.
    pub memory_limit: Option<u64>,
    /// Page faults so far.
    pub page_faults: u64,
    /// Of these, how many read from a disk.
    pub major_page_faults: u64,
    /// Swap in use, bytes.
    pub swap_usage: Option<u64>,
    /// Limit of swap, bytes.
    pub swap_limit: Option<u64>,
    /// Tasks (threads).
    pub pids: u64,
    /// Limit of tasks.
    pub pids_limit: Option<u64>,
    /// Read from block devices, bytes.
    pub io_read_bytes: u64,
    /// Written to block devices, bytes.
    pub io_write_bytes: u64,
    /// More of `memory.stat`, by v2's names: `file`, `active_file`, `inactive_file`, `active_anon`, `inactive_anon`,
    /// `file_mapped`.
    pub extra: BTreeMap<String, u64>,
}

/// The files of [`Stats`], opened once: a look is one pread each, whatever the size of the tree.
#[derive(Debug)]
pub(crate) struct Readers {
    cpu_v2: bool,
    memory_v2: bool,
    io_v2: bool,
    cpu_stat: Reader,
    cpuacct_usage: Reader,
    cpuacct_stat: Reader,
    memory_usage: Reader,
    memory_stat: Reader,
    memory_max: Reader,
    swap_usage: Reader,
    swap_max: Reader,
    pids_usage: Reader,
    pids_max: Reader,
    io: Reader,
}

/// One file, or nothing where the machine does not have it.
#[derive(Debug, Default)]
struct Reader {
    kept: Option<OwnedFd>,
    /// Path relative to its tree, where no descriptor could be had any more: then it is opened each time.
    controller_path: Option<(Controller, String)>,
}

impl Readers {
    fn open(group: &Group) -> Result<Self, Error> {
        let v2 = |controller| group.trees.with(controller).is_none_or(|tree| tree.v2);
        // v2 counts CPU time in every group, with or without the controller: in a hybrid the v1 tree has it.
        let cpu_v2 = v2(Controller::Cpuacct) && v2(Controller::Cpu);
        let (memory_v2, io_v2) = (v2(Controller::Memory), v2(Controller::Blkio));
        let only = |wanted: bool, controller: Controller, files: &[&str]| match wanted {
            true => Reader::open(group, controller, files),
            false => Ok(Reader::default()),
        };
        Ok(Self {
            cpu_v2,
            memory_v2,
            io_v2,
            cpu_stat: only(true, Controller::Cpu, &["cpu.stat"])?,
            cpuacct_usage: only(!cpu_v2, Controller::Cpuacct, &["cpuacct.usage"])?,
            cpuacct_stat: only(!cpu_v2, Controller::Cpuacct, &["cpuacct.stat"])?,
            memory_usage: only(true, Controller::Memory, &["memory.current", "memory.usage_in_bytes"])?,
            memory_stat: only(true, Controller::Memory, &["memory.stat"])?,
            memory_max: only(memory_v2, Controller::Memory, &["memory.max"])?,
            swap_usage: only(memory_v2, Controller::Memory, &["memory.swap.current"])?,
            swap_max: only(memory_v2, Controller::Memory, &["memory.swap.max"])?,
            pids_usage: only(true, Controller::Pids, &["pids.current"])?,
            pids_max: only(true, Controller::Pids, &["pids.max"])?,
            io: only(true, Controller::Blkio, if io_v2 { &["io.stat"] } else { &V1_IO })?,
        })
    }
}

const V1_IO: [&str; 2] = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];

impl Reader {
    fn open(group: &Group, controller: Controller, files: &[&str]) -> Result<Self, Error> {
        let Some(tree) = Self::tree(group, controller) else { return Ok(Self::default()) };
        for file in files {
            let path = group.file(tree, file);
            match tree.open(&path, OFlags::RDONLY) {
                Ok(fd) => return Ok(Self { kept: Some(fd), controller_path: None }),
                Err(Errno::NOENT) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    return Ok(Self { kept: None, controller_path: Some((controller, path)) });
                }
                Err(errno) => return Err(Error::io("open", tree.describe(&path), errno)),
            }
        }
        Ok(Self::default())
    }

    /// CPU time and PSI are in every v2 group.
    fn tree(group: &Group, controller: Controller) -> Option<&Tree> {
        group.trees.with(controller).or_else(|| group.trees.v2())
    }

    fn read(&self, group: &Group) -> Result<String, Error> {
        let failed = |errno| match errno {
            Errno::NODEV | Errno::NOENT => Error::Missing { path: group.path.to_string(), tree: "stats".into() },
            errno => Error::io("read statistics of", group.path.to_string(), errno),
        };
        match (&self.kept, &self.controller_path) {
            (Some(fd), _) => read_all(fd).map_err(failed),
            (None, Some((controller, path))) => match Self::tree(group, *controller) {
                Some(tree) => tree.try_read(path).map_err(failed),
                None => Ok(String::new()),
            },
            (None, None) => Ok(String::new()),
        }
    }

    fn number(&self, group: &Group) -> Result<Option<u64>, Error> {
        Ok(self.read(group)?.trim().parse().ok())
    }
}

impl Group {
    /// What the group used so far and uses now. The first call opens the files and keeps them open as long as the `Group`
    /// lives (about ten descriptors; where there are none left they are opened each time).
    pub fn stats(&self) -> Result<Stats, Error> {
        let readers = match self.readers.get() {
            Some(readers) => readers,
            None => {
                let opened = Readers::open(self)?;
                self.readers.get_or_init(|| opened)
            }
        };
        let mut stats = Stats::default();
        self.cpu(readers, &mut stats)?;
        self.memory(readers, &mut stats)?;
        stats.pids = readers.pids_usage.number(self)?.unwrap_or(0);
        stats.pids_limit = readers.pids_max.number(self)?;
        let io = readers.io.read(self)?;
        (stats.io_read_bytes, stats.io_write_bytes) = if readers.io_v2 { parse_io_v2(&io) } else { parse_io_v1(&io) };
        Ok(stats)
    }

    fn cpu(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        let text = readers.cpu_stat.read(self)?;
        for (key, value) in pairs(&text) {
            match key {
                "nr_periods" => stats.cpu_periods = value,
                "nr_throttled" => stats.cpu_throttled_periods = value,
                "throttled_time" => stats.cpu_throttled_ns = value,
                "throttled_usec" => stats.cpu_throttled_ns = value * 1000,
                "usage_usec" => stats.cpu_usage_ns = value * 1000,
                "user_usec" => stats.cpu_user_ns = value * 1000,
                "system_usec" => stats.cpu_system_ns = value * 1000,
                _ => {}
            }
        }
        if readers.cpu_v2 {
            return Ok(());
        }
        stats.cpu_usage_ns = readers.cpuacct_usage.number(self)?.unwrap_or(0);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        for (key, ticks) in pairs(&readers.cpuacct_stat.read(self)?) {
            match key {
                "user" => stats.cpu_user_ns = ticks * tick_ns,
                "system" => stats.cpu_system_ns = ticks * tick_ns,
                _ => {}
            }
        }
        Ok(())
    }

    fn memory(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        stats.memory_usage = readers.memory_usage.number(self)?.unwrap_or(0);
        stats.memory_limit = readers.memory_max.number(self)?;
        stats.swap_usage = readers.swap_usage.number(self)?;
        stats.swap_limit = readers.swap_max.number(self)?;
        let text = readers.memory_stat.read(self)?;
        if readers.memory_v2 {
            memory_stat_v2(&text, stats)
        } else {
            memory_stat_v1(&text, stats)
        }
        let inactive = stats.extra.get("inactive_file").copied().unwrap_or(0);
        stats.memory_working_set = stats.memory_usage.saturating_sub(inactive);
        Ok(())
    }
}

fn memory_stat_v2(text: &str, stats: &mut Stats) {
    for (key, value) in pairs(text) {
        match key {
            "anon" => stats.memory_rss = value,
            "pgfault" => stats.page_faults = value,
            "pgmajfault" => stats.major_page_faults = value,
            "file" | "active_file" | "inactive_file" | "active_anon" | "inactive_anon" | "file_mapped" => {
                stats.extra.insert(key.into(), value);
            }
            _ => {}
        }
    }
}

fn memory_stat_v1(text: &str, stats: &mut Stats) {
    let (mut limit, mut both) = (None, None);
    for (key, value) in pairs(text) {
        let mut extra = |name: &str| {
            stats.extra.insert(name.into(), value);
        };
        match key {
            "total_rss" => stats.memory_rss = value,
            "total_pgfault" => stats.page_faults = value,
            "total_pgmajfault" => stats.major_page_faults = value,
            "total_swap" => stats.swap_usage = Some(value),
            "hierarchical_memory_limit" => limit = bounded(value),
            "hierarchical_memsw_limit" => both = bounded(value),
            "total_cache" => extra("file"),
            "total_mapped_file" => extra("file_mapped"),
            "total_active_file" | "total_inactive_file" | "total_active_anon" | "total_inactive_anon" => {
                extra(key.trim_start_matches("total_"));
            }
            _ => {}
        }
    }
    stats.memory_limit = limit;
    stats.swap_limit = limit.zip(both).map(|(limit, both)| both.saturating_sub(limit));
}

/// v1 says "no limit" with the largest number of bytes in whole pages, whatever the page size.
fn bounded(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes < i64::MAX as u64 - (1 << 20))
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(key, value)| Some((key, value.parse().ok()?)))
}

/// `8:0 rbytes=1 wbytes=2 rios=…`.
fn parse_io_v2(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        let values = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        values.fold(0, u64::saturating_add)
    };
    (sum("rbytes="), sum("wbytes="))
}

/// `8:0 Read 1`.
fn parse_io_v1(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let values = lines.filter(|w| w.len() == 3 && w[1] == key).filter_map(|w| w[2].parse::<u64>().ok());
        values.fold(0, u64::saturating_add)
    };
    (sum("Read"), sum("Write"))
}

#[cfg(test)]
mod tests;
