//! Parses the statistics files of the kernel.

use super::{DeviceIo, Pressure, Stats};

pub(super) fn memory_stat_v2(text: &str, stats: &mut Stats) {
    for (key, value) in pairs(text) {
        match key {
            "anon" => stats.memory_rss = value,
            "file" => stats.memory_file = value,
            "kernel" => stats.memory_kernel = value,
            "file_mapped" => stats.memory_mapped_file = value,
            "file_dirty" => stats.memory_file_dirty = value,
            "file_writeback" => stats.memory_file_writeback = value,
            "workingset_refault_anon" => stats.refaults_anon = value,
            "workingset_refault_file" => stats.refaults_file = value,
            "pgscan" => stats.pages_scanned = value,
            "pgsteal" => stats.pages_stolen = value,
            "active_file" => stats.memory_active_file = value,
            "inactive_file" => stats.memory_inactive_file = value,
            "active_anon" => stats.memory_active_anon = value,
            "inactive_anon" => stats.memory_inactive_anon = value,
            "pgfault" => stats.page_faults = value,
            "pgmajfault" => stats.major_page_faults = value,
            _ => {}
        }
    }
}

pub(super) fn memory_stat_v1(text: &str, stats: &mut Stats) {
    let (mut limit, mut both) = (None, None);
    for (key, value) in pairs(text) {
        match key {
            "total_rss" => stats.memory_rss = value,
            "total_pgfault" => stats.page_faults = value,
            "total_pgmajfault" => stats.major_page_faults = value,
            "total_swap" => stats.swap_usage = Some(value),
            "hierarchical_memory_limit" => limit = limit_v1(value),
            "hierarchical_memsw_limit" => both = limit_v1(value),
            "total_cache" => stats.memory_file = value,
            "total_mapped_file" => stats.memory_mapped_file = value,
            "total_dirty" => stats.memory_file_dirty = value,
            "total_writeback" => stats.memory_file_writeback = value,
            "total_workingset_refault_anon" => stats.refaults_anon = value,
            "total_workingset_refault_file" => stats.refaults_file = value,
            "total_active_file" => stats.memory_active_file = value,
            "total_inactive_file" => stats.memory_inactive_file = value,
            "total_active_anon" => stats.memory_active_anon = value,
            "total_inactive_anon" => stats.memory_inactive_anon = value,
            _ => {}
        }
    }
    stats.memory_limit = limit;
    stats.swap_limit = limit.zip(both).map(|(limit, both)| both.saturating_sub(limit));
}

/// Converts a limit of v1, where "no limit" is the largest number of bytes in whole pages, for any page size.
fn limit_v1(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes < i64::MAX as u64 - (1 << 20))
}

pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(key, value)| Some((key, value.parse().ok()?)))
}

/// Parses `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`, one line per device.
pub(super) fn io_v2(text: &str) -> Vec<DeviceIo> {
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mut io = DeviceIo::parse(words.next()?)?;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or(0);
            match key {
                "rbytes" => io.read_bytes = value,
                "wbytes" => io.write_bytes = value,
                "rios" => io.reads = value,
                "wios" => io.writes = value,
                _ => {}
            }
        }
        Some(io)
    };
    text.lines().filter_map(device).collect()
}

/// Parses `8:0 Read 1`, one line per device and operation; one file has bytes, another one operations.
pub(super) fn io_v1(text: &str, devices: &mut Vec<DeviceIo>, set: impl Fn(&mut DeviceIo, &str, u64)) {
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(operation), Some(Ok(value))) =
            (words.next().and_then(DeviceIo::parse), words.next(), words.next().map(str::parse))
        else {
            continue;
        };
        let same = |io: &&mut DeviceIo| (io.major, io.minor) == (device.major, device.minor);
        match devices.iter_mut().find(same) {
            Some(io) => set(io, operation, value),
            None => {
                devices.push(device);
                devices.last_mut().into_iter().for_each(|io| set(io, operation, value));
            }
        }
    }
}

impl DeviceIo {
    fn parse(numbers: &str) -> Option<Self> {
        let (major, minor) = numbers.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()?, ..Self::default() })
    }
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and `full …`; `total` is in microseconds.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let stalls = match words.next()? {
            "some" => &mut pressure.some,
            "full" => &mut pressure.full,
            _ => continue,
        };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let percent = || value.parse().unwrap_or(0.0);
            match key {
                "avg10" => stalls.avg10 = percent(),
                "avg60" => stalls.avg60 = percent(),
                "avg300" => stalls.avg300 = percent(),
                "total" => stalls.total_ns = value.parse::<u64>().unwrap_or(0).saturating_mul(1000),
                _ => {}
            }
        }
    }
    (!text.is_empty()).then_some(pressure)
}
