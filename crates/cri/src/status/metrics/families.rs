use cri_proto::v1::{MetricDescriptor, MetricType};

/// The labels that all metrics start with, in this order.
pub(super) const LABELS: [&str; 5] = ["container", "id", "image", "namespace", "pod"];

/// A metric family: all metrics with the same name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    help: &'static str,
    pub(super) kind: MetricType,
    /// Labels in addition to [`LABELS`].
    pub(super) labels: &'static [&'static str],
}

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal $labels:tt: $help:literal;)*) => {
        $(
            pub(super) static $constant: Family =
                Family { name: $name, help: $help, kind: MetricType::$kind, labels: &$labels };
        )*
        static ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    CREATION_TIME = Gauge "container_creation_time_seconds" []: "When the container was created, seconds since the epoch";
    LAST_SEEN = Gauge "container_last_seen" []: "Last time a container was seen by the exporter, seconds since the epoch";
    START_TIME = Gauge "container_start_time_seconds" []: "Start time of the container, seconds since the epoch";

    CPU_USAGE = Counter "container_cpu_usage_seconds_total" ["cpu"]: "Cumulative CPU time consumed, seconds";
    CPU_USER = Counter "container_cpu_user_seconds_total" []: "Cumulative user CPU time consumed, seconds";
    CPU_SYSTEM = Counter "container_cpu_system_seconds_total" []: "Cumulative system CPU time consumed, seconds";
    CPU_PERIODS = Counter "container_cpu_cfs_periods_total" []: "Number of elapsed enforcement period intervals";
    CPU_THROTTLED_PERIODS = Counter "container_cpu_cfs_throttled_periods_total" []: "Number of throttled period intervals";
    CPU_THROTTLED = Counter "container_cpu_cfs_throttled_seconds_total" []: "Total time the container has been throttled, seconds";
    CPU_BURSTS = Counter "container_cpu_cfs_burst_periods_total" []: "Number of periods in which more than the quota was used";
    CPU_BURST = Counter "container_cpu_cfs_burst_seconds_total" []: "Total CPU time used beyond the quota, seconds";

    MEMORY_USAGE = Gauge "container_memory_usage_bytes" []: "Memory in use, including memory that was not accessed recently";
    MEMORY_WORKING_SET = Gauge "container_memory_working_set_bytes" []: "Memory in use except page cache that can be reclaimed at once";
    MEMORY_RSS = Gauge "container_memory_rss" []: "Anonymous memory";
    MEMORY_CACHE = Gauge "container_memory_cache" []: "Page cache";
    MEMORY_MAPPED_FILE = Gauge "container_memory_mapped_file" []: "Page cache mapped by processes";
    MEMORY_ACTIVE_FILE = Gauge "container_memory_total_active_file_bytes" []: "Page cache used recently";
    MEMORY_INACTIVE_FILE = Gauge "container_memory_total_inactive_file_bytes" []: "Page cache not used recently";
    MEMORY_KERNEL = Gauge "container_memory_kernel_usage" []: "Kernel memory used for the container";
    MEMORY_SWAP = Gauge "container_memory_swap" []: "Swap in use";
    MEMORY_MAX = Gauge "container_memory_max_usage_bytes" []: "Maximum memory usage";
    MEMORY_FAILCNT = Counter "container_memory_failcnt" []: "Number of times memory usage hit its limit";
    MEMORY_DIRTY = Gauge "container_memory_file_dirty_bytes" []: "Page cache that is not written back yet";
    MEMORY_WRITEBACK = Gauge "container_memory_file_writeback_bytes" []: "Page cache that is being written back";
    MEMORY_PGSCAN = Counter "container_memory_pgscan_total" []: "Pages scanned for reclaim";
    MEMORY_PGSTEAL = Counter "container_memory_pgsteal_total" []: "Pages reclaimed";
    MEMORY_REFAULT_ANON = Counter "container_memory_workingset_refault_anon_total" []: "Anonymous pages accessed again soon after they were reclaimed";
    MEMORY_REFAULT_FILE = Counter "container_memory_workingset_refault_file_total" []: "Pages of files accessed again soon after they were reclaimed";
    MEMORY_EVENTS_HIGH = Counter "container_memory_events_high_total" []: "Number of times memory usage exceeded its high boundary and the container was throttled";
    MEMORY_EVENTS_MAX = Counter "container_memory_events_max_total" []: "Number of times memory usage was about to exceed its limit";
    MEMORY_FAILURES = Counter "container_memory_failures_total" ["failure_type", "scope"]: "Cumulative count of page faults";
    OOM_EVENTS = Counter "container_oom_events_total" []: "Processes killed because the container was out of memory";

    HUGETLB_USAGE = Gauge "container_hugetlb_usage_bytes" ["pagesize"]: "Huge pages in use";
    HUGETLB_MAX = Gauge "container_hugetlb_max_usage_bytes" ["pagesize"]: "Maximum usage of huge pages";

    FS_USAGE = Gauge "container_fs_usage_bytes" ["device"]: "Disk space used by the writable layer";
    FS_LIMIT = Gauge "container_fs_limit_bytes" ["device"]: "Size of the file system of the writable layer";
    FS_INODES_FREE = Gauge "container_fs_inodes_free" ["device"]: "Free inodes of the file system of the writable layer";
    FS_INODES_TOTAL = Gauge "container_fs_inodes_total" ["device"]: "Inodes of the file system of the writable layer";
    FS_READ_BYTES = Counter "container_fs_reads_bytes_total" ["device"]: "Cumulative count of bytes read";
    FS_READS = Counter "container_fs_reads_total" ["device"]: "Cumulative count of reads";
    FS_WRITE_BYTES = Counter "container_fs_writes_bytes_total" ["device"]: "Cumulative count of bytes written";
    FS_WRITES = Counter "container_fs_writes_total" ["device"]: "Cumulative count of writes";
    BLKIO = Counter "container_blkio_device_usage_total" ["device", "major", "minor", "operation"]: "Bytes transferred by device and operation";

    NETWORK_RX_BYTES = Counter "container_network_receive_bytes_total" ["interface"]: "Cumulative count of bytes received";
    NETWORK_RX_PACKETS = Counter "container_network_receive_packets_total" ["interface"]: "Cumulative count of packets received";
    NETWORK_RX_DROPPED = Counter "container_network_receive_packets_dropped_total" ["interface"]: "Cumulative count of packets dropped while receiving";
    NETWORK_RX_ERRORS = Counter "container_network_receive_errors_total" ["interface"]: "Cumulative count of errors while receiving";
    NETWORK_TX_BYTES = Counter "container_network_transmit_bytes_total" ["interface"]: "Cumulative count of bytes transmitted";
    NETWORK_TX_PACKETS = Counter "container_network_transmit_packets_total" ["interface"]: "Cumulative count of packets transmitted";
    NETWORK_TX_DROPPED = Counter "container_network_transmit_packets_dropped_total" ["interface"]: "Cumulative count of packets dropped while transmitting";
    NETWORK_TX_ERRORS = Counter "container_network_transmit_errors_total" ["interface"]: "Cumulative count of errors while transmitting";

    PROCESSES = Gauge "container_processes" []: "Number of processes in the container";
    THREADS = Gauge "container_threads" []: "Number of threads in the container";
    THREADS_MAX = Gauge "container_threads_max" []: "Maximum number of threads in the container; 0 means no limit";
    FILE_DESCRIPTORS = Gauge "container_file_descriptors" []: "Number of open files of the container's processes";
    SOCKETS = Gauge "container_sockets" []: "Number of open sockets of the container's processes";
    ULIMITS_SOFT = Gauge "container_ulimits_soft" ["ulimit"]: "Soft limits of the container's init process";

    SPEC_CPU_PERIOD = Gauge "container_spec_cpu_period" []: "CPU period of the container, microseconds";
    SPEC_CPU_QUOTA = Gauge "container_spec_cpu_quota" []: "CPU quota of the container, microseconds in each period";
    SPEC_CPU_SHARES = Gauge "container_spec_cpu_shares" []: "CPU shares of the container";
    SPEC_MEMORY_LIMIT = Gauge "container_spec_memory_limit_bytes" []: "Memory limit of the container; 0 means no limit";
    SPEC_MEMORY_RESERVATION = Gauge "container_spec_memory_reservation_limit_bytes" []: "Memory reservation of the container; 0 means no reservation";
    SPEC_MEMORY_SWAP_LIMIT = Gauge "container_spec_memory_swap_limit_bytes" []: "Limit of memory plus swap of the container; 0 means no limit";

    PRESSURE_CPU_STALLED = Counter "container_pressure_cpu_stalled_seconds_total" []: "Time in which all tasks waited for a CPU, seconds";
    PRESSURE_CPU_WAITING = Counter "container_pressure_cpu_waiting_seconds_total" []: "Time in which some tasks waited for a CPU, seconds";
    PRESSURE_MEMORY_STALLED = Counter "container_pressure_memory_stalled_seconds_total" []: "Time in which all tasks waited for memory, seconds";
    PRESSURE_MEMORY_WAITING = Counter "container_pressure_memory_waiting_seconds_total" []: "Time in which some tasks waited for memory, seconds";
    PRESSURE_IO_STALLED = Counter "container_pressure_io_stalled_seconds_total" []: "Time in which all tasks waited for I/O, seconds";
    PRESSURE_IO_WAITING = Counter "container_pressure_io_waiting_seconds_total" []: "Time in which some tasks waited for I/O, seconds";
}

/// Returns the descriptors of all metric families.
pub(crate) fn descriptors() -> Vec<MetricDescriptor> {
    let keys = |family: &Family| LABELS.iter().chain(family.labels).map(|key| (*key).to_owned()).collect();
    ALL.iter()
        .map(|family| MetricDescriptor {
            name: family.name.to_owned(),
            help: family.help.to_owned(),
            label_keys: keys(family),
        })
        .collect()
}
