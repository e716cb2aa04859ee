//! The definitions of all metrics of the daemon: names, kinds, labels and help texts. `docs/metrics.md` lists the same.

use telemetry::{Kind, Metric};

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            pub(super) const $id: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// All metrics.
        #[cfg(test)]
        pub(super) const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    BUILD = Info "pinion_build" ["version", "cri_version", "monitor_contract"]
        "Versions of the programs, of the CRI, and of the contract between daemon and monitor.";

    RPC_IN_FLIGHT = Gauge "pinion_rpc_in_flight" ["service", "rpc"]
        "Running requests and open streams.";
    RPC_HANDLED = Counter "pinion_rpc_handled" ["service", "rpc", "code"]
        "Completed requests by gRPC code; Canceled: the client disconnected.";
    RPC_DURATION = Histogram "pinion_rpc_duration_seconds" ["service", "rpc"]
        "Duration of requests, whether or not they succeeded; of streams, their whole lifetime.";

    SANDBOXES = Gauge "pinion_sandboxes" ["state"]
        "Pod sandboxes by state: making, ready or stopped.";
    CONTAINERS = Gauge "pinion_containers" ["state"]
        "Containers by state: making, created, running or exited.";
    CONTAINERS_ENDED = Counter "pinion_containers_ended" ["reason"]
        "Containers that exited, by reason: Completed, Error, OOMKilled, or Unknown without an exit code.";
    LOG_DROPPED = Counter "pinion_log_dropped_bytes" []
        "Output of containers that was lost because the log file could not be written, and log entries that were removed because the log reached `containers.log_size_max`.";

    POOL_SIZE = Gauge "pinion_netns_pool_size" []
        "Target size of the pool of network namespaces.";
    POOL_READY = Gauge "pinion_netns_pool_ready" []
        "Network namespaces that are currently ready in the pool.";
    POOL_TAKEN = Counter "pinion_netns_pool_taken" ["made"]
        "Network namespaces taken by pods: created ahead, or late because none was ready.";
    POOL_REFILLED = Counter "pinion_netns_pool_refilled" []
        "Network namespaces created in advance.";
    POOL_FAILED = Counter "pinion_netns_pool_failures" []
        "Failed attempts to create a network namespace in advance.";

    ATTACH = Histogram "pinion_network_attach_duration_seconds" []
        "Time to attach a pod to its network.";
    ATTACH_FAILED = Counter "pinion_network_attach_failures" []
        "Failed attempts to attach a pod to its network.";
    DETACH = Histogram "pinion_network_detach_duration_seconds" []
        "Time to detach a pod from its network.";
    DETACH_FAILED = Counter "pinion_network_detach_failures" []
        "Failed attempts to detach a pod from its network.";
    PLUGINS_RUNNING = Gauge "pinion_cni_plugins_running" []
        "Running CNI plugin processes.";
    PLUGIN = Histogram "pinion_cni_plugin_duration_seconds" []
        "Duration of CNI plugin processes.";
    PLUGIN_FAILED = Counter "pinion_cni_plugin_failures" []
        "CNI plugin calls that failed or timed out.";

    MONITOR_UP = Gauge "pinion_monitor_up" []
        "1 if the monitor is connected, else 0.";
    MONITOR_RESTORED = Counter "pinion_monitor_restored" []
        "How often the connection to the monitor was restored after it broke, to the same monitor or a new one.";
    MONITOR_REQUESTS = Counter "pinion_monitor_requests" ["request"]
        "Requests to the monitor.";
    MONITOR_WAITING = Gauge "pinion_monitor_requests_waiting" []
        "Requests to the monitor without a response yet.";
    MONITOR_UNANSWERED = Counter "pinion_monitor_requests_unanswered" []
        "Requests to the monitor that never got a response: its connection broke, or it hung.";
    MONITOR_ROUND_TRIP = Histogram "pinion_monitor_round_trip_seconds" []
        "Time from a request to the monitor to its response.";
    MONITOR_CPU = Counter "pinion_monitor_cpu_seconds" []
        "CPU time of the monitor process; a new process starts at 0.";
    MONITOR_MEMORY = Gauge "pinion_monitor_resident_memory_bytes" []
        "Resident memory of the monitor.";
    MONITOR_FDS = Gauge "pinion_monitor_open_fds" []
        "Open descriptors of the monitor.";

    MONITOR_SILENT = Gauge "pinion_monitor_silent_seconds" []
        "Time since the last heartbeat response of the monitor; 0 if less than 10 s.";
    DATA_DISK_SILENT = Gauge "pinion_data_disk_silent_seconds" []
        "How long a write of one byte to the data directory has not completed; 0 if less than 10 s.";
    LOG_WRITERS_STUCK = Gauge "pinion_log_writers_stuck" []
        "File systems of container logs that their log writer is blocked on, as of the last heartbeat.";

    PULLS = Counter "pinion_image_pulls" ["outcome"]
        "Completed image pulls: ok, or the kind of error. A request that shares a running pull is not counted.";
    PULLS_RUNNING = Gauge "pinion_image_pulls_running" []
        "Running image pulls.";
    PULL = Histogram "pinion_image_pull_duration_seconds" []
        "Duration of successful pulls; short ones are of images that were already present.";
    FETCHED = Counter "pinion_image_fetched_bytes" []
        "Bytes of layers received from registries.";
    UNPACK = Histogram "pinion_image_unpack_duration_seconds" []
        "Time to unpack a layer, which happens during its download.";
    IMAGES = Gauge "pinion_images" []
        "Images in the store.";
    LAYERS = Gauge "pinion_image_layers" []
        "Layers in the store.";
    SNAPSHOTS = Gauge "pinion_image_snapshots" []
        "Writable layers of containers.";
    STORE_BYTES = Gauge "pinion_image_store_bytes" ["part"]
        "Disk space of layers (unpacked), blobs (as received) and snapshots (writable layers, as of the last sample).";
    COLLECTED = Counter "pinion_image_layers_collected" []
        "Layers that were removed because no image used them any longer.";
    TRASH = Gauge "pinion_image_trash" []
        "Removed directories that are not deleted yet.";

    SESSIONS = Gauge "pinion_streaming_sessions" ["kind"]
        "Clients connected to the streaming server: exec, attach or port_forward.";
    SESSIONS_STARTED = Counter "pinion_streaming_sessions_started" ["kind"]
        "Clients that connected to the streaming server.";

    LOG_LINES = Counter "pinion_log_lines" ["level"]
        "Lines of the daemon log.";
    LOG_LEFT_OUT = Counter "pinion_log_lines_left_out" []
        "Lines of the daemon log that were suppressed because there were too many similar ones.";
    LOG_DROPPED_LINES = Counter "pinion_log_lines_dropped" []
        "Lines of the daemon log that were dropped because standard error was not read fast enough.";
    SPANS = Counter "pinion_trace_spans" ["outcome"]
        "Spans: exported, dropped because the collector is unreachable or slow, or failed because it refused them.";
    SPANS_QUEUED = Gauge "pinion_trace_spans_queued" []
        "Spans waiting to be exported to the collector.";

    WORKERS = Gauge "pinion_tokio_workers" []
        "Threads that serve requests.";
    BLOCKING = Gauge "pinion_tokio_blocking_threads" []
        "Threads for blocking work on files, mounts and namespaces.";
    TASKS = Gauge "pinion_tokio_tasks" []
        "Async tasks.";
    QUEUE = Gauge "pinion_tokio_queue_depth" []
        "Tasks in the global queue that wait for a thread.";
    BUSY = Counter "pinion_tokio_busy_seconds" []
        "Total time that the threads which serve requests were not idle.";

    CPU = Counter "process_cpu_seconds" []
        "CPU time of the daemon, user and system.";
    MEMORY = Gauge "process_resident_memory_bytes" []
        "Resident memory of the daemon.";
    VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory of the daemon.";
    FDS = Gauge "process_open_fds" []
        "Open descriptors of the daemon.";
    MAX_FDS = Gauge "process_max_fds" []
        "Maximum number of open descriptors of the daemon.";
    THREADS = Gauge "process_threads" []
        "Threads of the daemon.";
    START_TIME = Gauge "process_start_time_seconds" []
        "Start time of the daemon, in seconds since the epoch.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for (n, metric) in ALL.iter().enumerate() {
            let name = metric.name;
            assert!(name.starts_with("pinion_") || name.starts_with("process_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info") && !name.contains("_ms"), "{name}");
            assert_eq!(
                metric.kind == Kind::Histogram,
                name.ends_with("_duration_seconds") || name.ends_with("_trip_seconds"),
                "{name}"
            );
            assert!(metric.help.ends_with('.') && metric.help.len() > 10, "{name}");
            assert!(!metric.labels.iter().any(|label| ["id", "pod", "container", "le"].contains(label)), "{name}");
            assert!(ALL[..n].iter().all(|other| other.name != name), "{name} is defined twice");
        }
    }
}
