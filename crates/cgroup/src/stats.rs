mod parse;
mod reader;

use parse::{io_v1, io_v2, memory_stat_v1, memory_stat_v2, pairs, pressure};

use crate::{Error, Group};

pub(crate) use reader::Readers;

/// What a group used and may use. What the machine cannot tell (no controller) is 0 or `None`.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Periods in which more than the quota was used, out of what was saved before (`cpu.max.burst`; kernel 5.14).
    pub cpu_bursts: u64,
    /// CPU time used beyond the quota in them, ns.
    pub cpu_burst_ns: u64,
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
    /// The same by device, in the kernel's order; devices that were not used are left out.
    pub io_devices: Vec<DeviceIo>,
    /// Page cache, bytes.
    pub memory_file: u64,
    /// Of this mapped by processes, bytes.
    pub memory_mapped_file: u64,
    /// Page cache that is not written to disk yet, bytes.
    pub memory_file_dirty: u64,
    /// Page cache that is being written, bytes.
    pub memory_file_writeback: u64,
    /// Anonymous pages that were needed again soon after they were taken (kernel 5.9).
    pub refaults_anon: u64,
    /// The same of page cache.
    pub refaults_file: u64,
    /// Pages looked at to be taken; v2 only.
    pub pages_scanned: u64,
    /// Pages taken; v2 only.
    pub pages_stolen: u64,
    /// Page cache used lately, bytes.
    pub memory_active_file: u64,
    /// Page cache that can go first, bytes.
    pub memory_inactive_file: u64,
    /// Anonymous memory used lately, bytes.
    pub memory_active_anon: u64,
    /// Anonymous memory that can be swapped first, bytes.
    pub memory_inactive_anon: u64,
    /// Memory of the kernel for the group, bytes; 0 on v1, which has it in a file of its own.
    pub memory_kernel: u64,
    /// Waiting for a CPU. Told wherever the v2 tree is mounted, with controllers or without (kernel 5.2, `CONFIG_PSI`).
    pub cpu_pressure: Option<Pressure>,
    /// Waiting for memory.
    pub memory_pressure: Option<Pressure>,
    /// Waiting for block devices.
    pub io_pressure: Option<Pressure>,
}

/// What a group read from and wrote to one block device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The device's numbers.
    pub major: u32,
    /// The device's numbers.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Pressure stall information (PSI) of one resource: `Documentation/accounting/psi.rst` of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// While at least one task waited.
    pub some: Stalls,
    /// While all tasks that could do something waited.
    pub full: Stalls,
}

/// Time lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// Percent of the last 10 seconds.
    pub avg10: f64,
    /// Percent of the last 60 seconds.
    pub avg60: f64,
    /// Percent of the last 300 seconds.
    pub avg300: f64,
    /// So far, ns.
    pub total_ns: u64,
}

impl Group {
    /// What the group used so far and uses now. The first call opens the files and keeps them open as long as the
    /// `Group` lives (about fifteen descriptors). All groups of a process keep at most half of the descriptors that it
    /// may have; past that, files are opened each time.
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
        self.io(readers, &mut stats)?;
        stats.pids = readers.pids_usage.number(self)?.unwrap_or(0);
        stats.pids_limit = readers.pids_max.number(self)?;
        stats.cpu_pressure = readers.cpu_pressure.read(self, pressure)?;
        stats.memory_pressure = readers.memory_pressure.read(self, pressure)?;
        stats.io_pressure = readers.io_pressure.read(self, pressure)?;
        Ok(stats)
    }

    fn cpu(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        readers.cpu_stat.read(self, |text| {
            for (key, value) in pairs(text) {
                match key {
                    "nr_periods" => stats.cpu_periods = value,
                    "nr_throttled" => stats.cpu_throttled_periods = value,
                    "throttled_time" => stats.cpu_throttled_ns = value,
                    "throttled_usec" => stats.cpu_throttled_ns = value * 1000,
                    "nr_bursts" => stats.cpu_bursts = value,
                    "burst_time" => stats.cpu_burst_ns = value,
                    "burst_usec" => stats.cpu_burst_ns = value * 1000,
                    "usage_usec" => stats.cpu_usage_ns = value * 1000,
                    "user_usec" => stats.cpu_user_ns = value * 1000,
                    "system_usec" => stats.cpu_system_ns = value * 1000,
                    _ => {}
                }
            }
        })?;
        if readers.cpu_v2 {
            return Ok(());
        }
        stats.cpu_usage_ns = readers.cpuacct_usage.number(self)?.unwrap_or(0);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        readers.cpuacct_stat.read(self, |text| {
            for (key, ticks) in pairs(text) {
                match key {
                    "user" => stats.cpu_user_ns = ticks * tick_ns,
                    "system" => stats.cpu_system_ns = ticks * tick_ns,
                    _ => {}
                }
            }
        })
    }

    fn memory(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        stats.memory_usage = readers.memory_usage.number(self)?.unwrap_or(0);
        stats.memory_limit = readers.memory_max.number(self)?;
        stats.swap_usage = readers.swap_usage.number(self)?;
        stats.swap_limit = readers.swap_max.number(self)?;
        readers.memory_stat.read(self, |text| match readers.memory_v2 {
            true => memory_stat_v2(text, stats),
            false => memory_stat_v1(text, stats),
        })?;
        stats.memory_working_set = stats.memory_usage.saturating_sub(stats.memory_inactive_file);
        Ok(())
    }

    fn io(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        let mut devices = Vec::new();
        if readers.io_v2 {
            devices = readers.io_bytes.read(self, io_v2)?;
        } else {
            readers.io_bytes.read(self, |text| {
                io_v1(text, &mut devices, |io, operation, value| match operation {
                    "Read" => io.read_bytes = value,
                    "Write" => io.write_bytes = value,
                    _ => {}
                });
            })?;
            readers.io_operations.read(self, |text| {
                io_v1(text, &mut devices, |io, operation, value| match operation {
                    "Read" => io.reads = value,
                    "Write" => io.writes = value,
                    _ => {}
                });
            })?;
        }
        devices.retain(|io| io.read_bytes | io.write_bytes | io.reads | io.writes != 0);
        let sum = |each: fn(&DeviceIo) -> u64| devices.iter().map(each).fold(0, u64::saturating_add);
        (stats.io_read_bytes, stats.io_write_bytes) = (sum(|io| io.read_bytes), sum(|io| io.write_bytes));
        stats.io_devices = devices;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
