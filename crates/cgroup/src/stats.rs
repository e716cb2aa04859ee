mod open;
mod parse;

use parse::{io_v1, io_v2, memory_stat_v1, memory_stat_v2, pairs, pressure};

use crate::{
    Error, Group,
    stat_readers::{Reader, Readers},
};

/// The usage and the limits of a group. A value that is not available (no controller) is 0 or `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// CPU time of all processes so far, in ns.
    pub cpu_usage_ns: u64,
    /// CPU time in user mode, in ns.
    pub cpu_user_ns: u64,
    /// CPU time in kernel mode, in ns.
    pub cpu_system_ns: u64,
    /// Elapsed periods of the CPU quota.
    pub cpu_periods: u64,
    /// Periods in which the group was throttled.
    pub cpu_throttled_periods: u64,
    /// Throttled time, in ns.
    pub cpu_throttled_ns: u64,
    /// Periods in which the group used more than the quota, from saved quota (`cpu.max.burst`, Linux 5.14).
    pub cpu_bursts: u64,
    /// CPU time beyond the quota in those periods, in ns.
    pub cpu_burst_ns: u64,
    /// Memory usage including the page cache, in bytes.
    pub memory_usage: u64,
    /// Memory usage without `inactive_file`, in bytes, by which the kubelet evicts pods.
    pub memory_working_set: u64,
    /// Anonymous memory, in bytes.
    pub memory_rss: u64,
    /// Memory limit, in bytes; on v1 the lowest of the group and its ancestors.
    pub memory_limit: Option<u64>,
    /// Page faults so far.
    pub page_faults: u64,
    /// Major page faults so far.
    pub major_page_faults: u64,
    /// Swap usage, in bytes.
    pub swap_usage: Option<u64>,
    /// Swap limit, in bytes.
    pub swap_limit: Option<u64>,
    /// Number of tasks (threads).
    pub pids: u64,
    /// Limit of tasks.
    pub pids_limit: Option<u64>,
    /// Bytes read from block devices.
    pub io_read_bytes: u64,
    /// Bytes written to block devices.
    pub io_write_bytes: u64,
    /// I/O by device, in the kernel's order; unused devices are omitted.
    pub io_devices: Vec<DeviceIo>,
    /// Page cache, in bytes.
    pub memory_file: u64,
    /// Page cache that is mapped by processes, in bytes.
    pub memory_mapped_file: u64,
    /// Dirty page cache, in bytes.
    pub memory_file_dirty: u64,
    /// Page cache under writeback, in bytes.
    pub memory_file_writeback: u64,
    /// Refaults of reclaimed anonymous pages (`workingset_refault_anon`, Linux 5.9).
    pub refaults_anon: u64,
    /// Refaults of reclaimed page cache (`workingset_refault_file`).
    pub refaults_file: u64,
    /// Pages scanned by reclaim (`pgscan`); v2 only.
    pub pages_scanned: u64,
    /// Pages reclaimed (`pgsteal`); v2 only.
    pub pages_stolen: u64,
    /// Page cache on the active LRU list, in bytes.
    pub memory_active_file: u64,
    /// Page cache on the inactive LRU list, in bytes.
    pub memory_inactive_file: u64,
    /// Anonymous memory on the active LRU list, in bytes.
    pub memory_active_anon: u64,
    /// Anonymous memory on the inactive LRU list, in bytes.
    pub memory_inactive_anon: u64,
    /// Kernel memory of the group, in bytes; 0 on v1, which has it in a separate file.
    pub memory_kernel: u64,
    /// CPU pressure. Available if the v2 tree is mounted, with or without controllers (Linux 5.2, `CONFIG_PSI`).
    pub cpu_pressure: Option<Pressure>,
    /// Memory pressure.
    pub memory_pressure: Option<Pressure>,
    /// I/O pressure.
    pub io_pressure: Option<Pressure>,
}

/// The I/O of a group on one block device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The major number of the device.
    pub major: u32,
    /// The minor number of the device.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

/// Pressure stall information (PSI) of one resource: `Documentation/accounting/psi.rst` of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Time in which at least one task was stalled.
    pub some: Stalls,
    /// Time in which all non-idle tasks were stalled.
    pub full: Stalls,
}

/// Stall times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// Percent of the last 10 seconds.
    pub avg10: f64,
    /// Percent of the last 60 seconds.
    pub avg60: f64,
    /// Percent of the last 300 seconds.
    pub avg300: f64,
    /// Total time, in ns.
    pub total_ns: u64,
}

impl Group {
    /// Reads the statistics of the group. The first call opens the files, which stay open until the `Group` is dropped
    /// (about fifteen descriptors). All groups of a process keep at most half of RLIMIT_NOFILE open; beyond that, files
    /// are opened for each call.
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
        stats.pids = self.stat_number(&readers.pids_usage)?.unwrap_or(0);
        stats.pids_limit = self.stat_number(&readers.pids_max)?;
        stats.cpu_pressure = self.parse_stat(&readers.cpu_pressure, pressure)?;
        stats.memory_pressure = self.parse_stat(&readers.memory_pressure, pressure)?;
        stats.io_pressure = self.parse_stat(&readers.io_pressure, pressure)?;
        Ok(stats)
    }

    fn parse_stat<T>(&self, reader: &Reader, parse: impl FnOnce(&str) -> T) -> Result<T, Error> {
        reader.read(&self.trees, &self.path, parse)
    }

    fn stat_number(&self, reader: &Reader) -> Result<Option<u64>, Error> {
        self.parse_stat(reader, |text| text.trim().parse().ok())
    }

    fn cpu(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        self.parse_stat(&readers.cpu_stat, |text| {
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
        stats.cpu_usage_ns = self.stat_number(&readers.cpuacct_usage)?.unwrap_or(0);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        self.parse_stat(&readers.cpuacct_stat, |text| {
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
        stats.memory_usage = self.stat_number(&readers.memory_usage)?.unwrap_or(0);
        stats.memory_limit = self.stat_number(&readers.memory_max)?;
        stats.swap_usage = self.stat_number(&readers.swap_usage)?;
        stats.swap_limit = self.stat_number(&readers.swap_max)?;
        self.parse_stat(&readers.memory_stat, |text| match readers.memory_v2 {
            true => memory_stat_v2(text, stats),
            false => memory_stat_v1(text, stats),
        })?;
        stats.memory_working_set = stats.memory_usage.saturating_sub(stats.memory_inactive_file);
        Ok(())
    }

    fn io(&self, readers: &Readers, stats: &mut Stats) -> Result<(), Error> {
        let mut devices = Vec::new();
        if readers.io_v2 {
            devices = self.parse_stat(&readers.io_bytes, io_v2)?;
        } else {
            self.parse_stat(&readers.io_bytes, |text| {
                io_v1(text, &mut devices, |io, operation, value| match operation {
                    "Read" => io.read_bytes = value,
                    "Write" => io.write_bytes = value,
                    _ => {}
                });
            })?;
            self.parse_stat(&readers.io_operations, |text| {
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
