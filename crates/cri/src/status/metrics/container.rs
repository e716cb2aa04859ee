use pod::{ContainerStats, Name, Pressure, oci};

use super::{
    device::{Devices, Filesystem},
    families as family,
    writer::{SECOND, Writer, text},
};

/// Tag in `ContainerMetrics`.
const ID: u32 = 1;
/// The kernel's default period of a CPU quota in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// CPU shares of a container that does not set them.
const CPU_SHARES: u64 = 1024;

static DEVICES: std::sync::LazyLock<Devices> = std::sync::LazyLock::new(Devices::default);

/// Encodes the `ContainerMetrics` of a container.
pub(super) fn write(out: &mut Vec<u8>, stats: &ContainerStats, pod: &Name, filesystem: &Filesystem) {
    let container = &stats.container;
    text(ID, container.id.as_str(), out);
    // The reference that the user specified, because kubelet requests images by id.
    let named = &container.config.user_specified_image;
    let image = if named.is_empty() { container.config.image.as_str() } else { named.as_str() };
    let labels = [container.config.name.as_str(), container.id.as_str(), image, &pod.namespace, &pod.name];
    let mut writer = Writer::new(out, labels, stats.at);
    writer.add(&family::CREATION_TIME, [], container.created_at / SECOND);
    writer.add(&family::LAST_SEEN, [], stats.at / SECOND);
    writer.add(&family::START_TIME, [], container.started_at / SECOND);
    cpu(&mut writer, stats);
    memory(&mut writer, stats);
    disk(&mut writer, stats, filesystem);
    processes(&mut writer, stats);
    limits(&mut writer, &container.resources);
    pressure(&mut writer, stats);
}

fn cpu(writer: &mut Writer<'_>, stats: &ContainerStats) {
    let cgroup = &stats.cgroup;
    writer.add(&family::CPU_USAGE, ["total"], cgroup.cpu_usage_ns / SECOND);
    writer.add(&family::CPU_USER, [], cgroup.cpu_user_ns / SECOND);
    writer.add(&family::CPU_SYSTEM, [], cgroup.cpu_system_ns / SECOND);
    let quota = stats.container.resources.cpu.as_ref().and_then(|cpu| cpu.quota);
    if quota.is_some_and(|quota| quota > 0) {
        writer.add(&family::CPU_PERIODS, [], cgroup.cpu_periods);
        writer.add(&family::CPU_THROTTLED_PERIODS, [], cgroup.cpu_throttled_periods);
        writer.add(&family::CPU_THROTTLED, [], cgroup.cpu_throttled_ns / SECOND);
        writer.add(&family::CPU_BURSTS, [], cgroup.cpu_bursts);
        writer.add(&family::CPU_BURST, [], cgroup.cpu_burst_ns / SECOND);
    }
}

fn memory(writer: &mut Writer<'_>, stats: &ContainerStats) {
    let (cgroup, expensive) = (&stats.cgroup, &stats.expensive);
    writer.add(&family::MEMORY_USAGE, [], cgroup.memory_usage);
    writer.add(&family::MEMORY_WORKING_SET, [], cgroup.memory_working_set);
    writer.add(&family::MEMORY_RSS, [], cgroup.memory_rss);
    writer.add(&family::MEMORY_CACHE, [], cgroup.memory_file);
    writer.add(&family::MEMORY_MAPPED_FILE, [], cgroup.memory_mapped_file);
    writer.add(&family::MEMORY_ACTIVE_FILE, [], cgroup.memory_active_file);
    writer.add(&family::MEMORY_INACTIVE_FILE, [], cgroup.memory_inactive_file);
    writer.add(&family::MEMORY_KERNEL, [], expensive.memory_kernel.unwrap_or(cgroup.memory_kernel));
    writer.add(&family::MEMORY_SWAP, [], cgroup.swap_usage.unwrap_or(0));
    if let Some(most) = expensive.memory_max_usage {
        writer.add(&family::MEMORY_MAX, [], most);
    }
    writer.add(&family::MEMORY_FAILCNT, [], expensive.memory_failures);
    // A container has no child cgroups, so both scopes have the same value.
    for scope in ["container", "hierarchy"] {
        writer.add(&family::MEMORY_FAILURES, ["pgfault", scope], cgroup.page_faults);
        writer.add(&family::MEMORY_FAILURES, ["pgmajfault", scope], cgroup.major_page_faults);
    }
    writer.add(&family::OOM_EVENTS, [], expensive.oom_kills);
    reclaim(writer, stats);
    for pages in &expensive.huge_pages {
        writer.add(&family::HUGETLB_USAGE, [&pages.size], pages.usage);
        writer.add(&family::HUGETLB_MAX, [&pages.size], pages.max_usage);
    }
}

/// Adds the metrics of memory reclaim and its causes.
fn reclaim(writer: &mut Writer<'_>, stats: &ContainerStats) {
    let (cgroup, expensive) = (&stats.cgroup, &stats.expensive);
    writer.add(&family::MEMORY_DIRTY, [], cgroup.memory_file_dirty);
    writer.add(&family::MEMORY_WRITEBACK, [], cgroup.memory_file_writeback);
    writer.add(&family::MEMORY_PGSCAN, [], cgroup.pages_scanned);
    writer.add(&family::MEMORY_PGSTEAL, [], cgroup.pages_stolen);
    writer.add(&family::MEMORY_REFAULT_ANON, [], cgroup.refaults_anon);
    writer.add(&family::MEMORY_REFAULT_FILE, [], cgroup.refaults_file);
    writer.add(&family::MEMORY_EVENTS_HIGH, [], expensive.memory_high);
    // cgroup v1 counts these events as failures.
    writer.add(&family::MEMORY_EVENTS_MAX, [], expensive.memory_failures);
}

fn disk(writer: &mut Writer<'_>, stats: &ContainerStats, filesystem: &Filesystem) {
    let device = filesystem.device.as_str();
    writer.add(&family::FS_USAGE, [device], stats.writable_layer.bytes);
    writer.add(&family::FS_LIMIT, [device], filesystem.size);
    writer.add(&family::FS_INODES_FREE, [device], filesystem.inodes_free);
    writer.add(&family::FS_INODES_TOTAL, [device], filesystem.inodes);
    for io in &stats.cgroup.io_devices {
        let device = DEVICES.name(io.major, io.minor);
        writer.add(&family::FS_READ_BYTES, [&device], io.read_bytes);
        writer.add(&family::FS_READS, [&device], io.reads);
        writer.add(&family::FS_WRITE_BYTES, [&device], io.write_bytes);
        writer.add(&family::FS_WRITES, [&device], io.writes);
        let (major, minor) = (io.major.to_string(), io.minor.to_string());
        for (operation, bytes) in [("Read", io.read_bytes), ("Write", io.write_bytes)] {
            writer.add(&family::BLKIO, [&device, &major, &minor, operation], bytes);
        }
    }
}

fn processes(writer: &mut Writer<'_>, stats: &ContainerStats) {
    let expensive = &stats.expensive;
    writer.add(&family::PROCESSES, [], expensive.processes);
    writer.add(&family::THREADS, [], stats.cgroup.pids);
    writer.add(&family::THREADS_MAX, [], stats.cgroup.pids_limit.unwrap_or(0));
    if let Some(open) = expensive.open_files {
        writer.add(&family::FILE_DESCRIPTORS, [], open);
    }
    if let Some(open) = expensive.sockets {
        writer.add(&family::SOCKETS, [], open);
    }
    if let Some(limit) = expensive.open_files_limit {
        writer.add(&family::ULIMITS_SOFT, ["max_open_files"], limit);
    }
}

fn limits(writer: &mut Writer<'_>, resources: &oci::Resources) {
    let (cpu, memory) = (resources.cpu.clone().unwrap_or_default(), resources.memory.clone().unwrap_or_default());
    writer.add(&family::SPEC_CPU_PERIOD, [], cpu.period.filter(|period| *period > 0).unwrap_or(CPU_PERIOD));
    if let Some(quota) = cpu.quota.and_then(|quota| u64::try_from(quota).ok()).filter(|quota| *quota > 0) {
        writer.add(&family::SPEC_CPU_QUOTA, [], quota);
    }
    writer.add(&family::SPEC_CPU_SHARES, [], cpu.shares.filter(|shares| *shares > 0).unwrap_or(CPU_SHARES));
    // A negative value means no limit.
    let bytes = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(0);
    writer.add(&family::SPEC_MEMORY_LIMIT, [], bytes(memory.limit));
    writer.add(&family::SPEC_MEMORY_RESERVATION, [], bytes(memory.reservation));
    writer.add(&family::SPEC_MEMORY_SWAP_LIMIT, [], bytes(memory.swap));
}

fn pressure(writer: &mut Writer<'_>, stats: &ContainerStats) {
    let mut both = |pressure: &Option<Pressure>, stalled, waiting| {
        if let Some(pressure) = pressure {
            writer.add(stalled, [], pressure.full.total_ns / SECOND);
            writer.add(waiting, [], pressure.some.total_ns / SECOND);
        }
    };
    let cgroup = &stats.cgroup;
    both(&cgroup.cpu_pressure, &family::PRESSURE_CPU_STALLED, &family::PRESSURE_CPU_WAITING);
    both(&cgroup.memory_pressure, &family::PRESSURE_MEMORY_STALLED, &family::PRESSURE_MEMORY_WAITING);
    both(&cgroup.io_pressure, &family::PRESSURE_IO_STALLED, &family::PRESSURE_IO_WAITING);
}
