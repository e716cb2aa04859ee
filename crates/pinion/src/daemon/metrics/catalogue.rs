//! Every metric that the daemon has: the one place where figures get names. `docs/metrics.md` lists the same.

use telemetry::{Kind, Metric};

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            pub(super) const $id: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// All of them.
        #[cfg(test)]
        pub(super) const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    BUILD = Info "pinion_build" ["version", "cri_version", "monitor_contract"]
        "What runs: version of the programs, of the CRI, and of the contract between daemon and monitor.";

    RPC_IN_FLIGHT = Gauge "pinion_rpc_in_flight" ["service", "rpc"]
        "Requests that run, and streams that are open.";
    RPC_HANDLED = Counter "pinion_rpc_handled" ["service", "rpc", "code"]
        "Requests that ended, by gRPC code; Canceled: the client left.";
    RPC_DURATION = Histogram "pinion_rpc_duration_seconds" ["service", "rpc"]
        "How long requests took, whatever came of them; of streams, their whole life.";

    SANDBOXES = Gauge "pinion_sandboxes" ["state"]
        "Pod sandboxes that are known: making, ready or stopped.";
    CONTAINERS = Gauge "pinion_containers" ["state"]
        "Containers that are known: making, created, running or exited.";
    CONTAINERS_ENDED = Counter "pinion_containers_ended" ["reason"]
        "Containers whose program ended: Completed, Error, OOMKilled, or Unknown where nobody could see how.";
    LOG_DROPPED = Counter "pinion_log_dropped_bytes" []
        "Output of containers that is in no log because its file could not be written.";

    POOL_SIZE = Gauge "pinion_netns_pool_size" []
        "Network namespaces that are kept ready.";
    POOL_READY = Gauge "pinion_netns_pool_ready" []
        "Network namespaces that are ready now.";
    POOL_TAKEN = Counter "pinion_netns_pool_taken" ["made"]
        "Network namespaces that pods got: made ahead, or late because none was ready.";
    POOL_REFILLED = Counter "pinion_netns_pool_refilled" []
        "Network namespaces that were made ahead.";
    POOL_FAILED = Counter "pinion_netns_pool_failures" []
        "Attempts to make a network namespace ahead that failed.";

    ATTACH = Histogram "pinion_network_attach_duration_seconds" []
        "How long pods took to be attached to their network.";
    ATTACH_FAILED = Counter "pinion_network_attach_failures" []
        "Pods that could not be attached to their network.";
    DETACH = Histogram "pinion_network_detach_duration_seconds" []
        "How long pods took to be detached from their network.";
    DETACH_FAILED = Counter "pinion_network_detach_failures" []
        "Attempts to detach a pod that failed.";
    PLUGINS_RUNNING = Gauge "pinion_cni_plugins_running" []
        "CNI plugins (programs) that run.";
    PLUGIN = Histogram "pinion_cni_plugin_duration_seconds" []
        "How long CNI plugins (programs) took.";
    PLUGIN_FAILED = Counter "pinion_cni_plugin_failures" []
        "Calls of CNI plugins that failed or took too long.";

    MONITOR_UP = Gauge "pinion_monitor_up" []
        "1 while the monitor is connected.";
    MONITOR_RESTORED = Counter "pinion_monitor_restored" []
        "How often the connection to the monitor broke and was made again, with the same monitor or another.";
    MONITOR_REQUESTS = Counter "pinion_monitor_requests" ["request"]
        "Requests to the monitor.";
    MONITOR_WAITING = Gauge "pinion_monitor_requests_waiting" []
        "Requests that the monitor has not answered yet.";
    MONITOR_UNANSWERED = Counter "pinion_monitor_requests_unanswered" []
        "Requests that the monitor never answered: its connection broke, or it hung.";
    MONITOR_ROUND_TRIP = Histogram "pinion_monitor_round_trip_seconds" []
        "From a request to the monitor to its answer.";
    MONITOR_CPU = Counter "pinion_monitor_cpu_seconds" []
        "CPU time of the monitor's process; another process begins at 0.";
    MONITOR_MEMORY = Gauge "pinion_monitor_resident_memory_bytes" []
        "Resident memory of the monitor.";
    MONITOR_FDS = Gauge "pinion_monitor_open_fds" []
        "Descriptors that the monitor has open.";

    MONITOR_SILENT = Gauge "pinion_monitor_silent_seconds" []
        "How long the monitor has not answered its heartbeat; 0 below 10 s.";
    DATA_DISK_SILENT = Gauge "pinion_data_disk_silent_seconds" []
        "How long a write of one byte to the data directory has not been answered; 0 below 10 s.";
    LOG_WRITERS_STUCK = Gauge "pinion_log_writers_stuck" []
        "File systems of container logs whose writer waits for them, as of the last heartbeat.";

    PULLS = Counter "pinion_image_pulls" ["outcome"]
        "Pulls of images that ended: ok, or the kind of their error. Who joins a running pull is not counted again.";
    PULLS_RUNNING = Gauge "pinion_image_pulls_running" []
        "Pulls of images that run.";
    PULL = Histogram "pinion_image_pull_duration_seconds" []
        "How long pulls took that ended well; those of images that were here already are the short ones.";
    FETCHED = Counter "pinion_image_fetched_bytes" []
        "Bytes of layers that registries sent.";
    UNPACK = Histogram "pinion_image_unpack_duration_seconds" []
        "How long layers took to be unpacked; they are while they are downloaded.";
    IMAGES = Gauge "pinion_images" []
        "Images in the store.";
    LAYERS = Gauge "pinion_image_layers" []
        "Layers in the store.";
    SNAPSHOTS = Gauge "pinion_image_snapshots" []
        "Writable layers of containers.";
    STORE_BYTES = Gauge "pinion_image_store_bytes" ["part"]
        "Disk space: layers (unpacked), blobs (as they were sent), snapshots (writable layers, as sampled last).";
    COLLECTED = Counter "pinion_image_layers_collected" []
        "Layers that no image needed any more and that were taken away.";
    TRASH = Gauge "pinion_image_trash" []
        "Directories that were taken away and are not deleted yet.";

    SESSIONS = Gauge "pinion_streaming_sessions" ["kind"]
        "Clients that are connected to the streaming server: exec, attach or port_forward.";
    SESSIONS_STARTED = Counter "pinion_streaming_sessions_started" ["kind"]
        "Clients that connected to the streaming server.";

    LOG_LINES = Counter "pinion_log_lines" ["level"]
        "Lines of the daemon's own log.";
    LOG_LEFT_OUT = Counter "pinion_log_lines_left_out" []
        "Lines of the daemon's own log that were left out because there were too many like them.";
    LOG_DROPPED_LINES = Counter "pinion_log_lines_dropped" []
        "Lines of the daemon's own log that were dropped because standard error did not take them.";
    SPANS = Counter "pinion_trace_spans" ["outcome"]
        "Spans: exported, dropped because the collector is away or slow, or failed because it did not take them.";
    SPANS_QUEUED = Gauge "pinion_trace_spans_queued" []
        "Spans that wait for the collector.";

    WORKERS = Gauge "pinion_tokio_workers" []
        "Threads that serve requests.";
    BLOCKING = Gauge "pinion_tokio_blocking_threads" []
        "Threads for work that waits for files, mounts and namespaces.";
    TASKS = Gauge "pinion_tokio_tasks" []
        "Asynchronous tasks that are alive.";
    QUEUE = Gauge "pinion_tokio_queue_depth" []
        "Tasks that wait for a thread in the common queue.";
    BUSY = Counter "pinion_tokio_busy_seconds" []
        "Time that the threads which serve requests were not idle, all together.";

    CPU = Counter "process_cpu_seconds" []
        "CPU time of the daemon, user and system.";
    MEMORY = Gauge "process_resident_memory_bytes" []
        "Resident memory of the daemon.";
    VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory of the daemon.";
    FDS = Gauge "process_open_fds" []
        "Descriptors that the daemon has open.";
    MAX_FDS = Gauge "process_max_fds" []
        "Descriptors that the daemon may have open.";
    THREADS = Gauge "process_threads" []
        "Threads of the daemon.";
    START_TIME = Gauge "process_start_time_seconds" []
        "When the daemon started, in seconds since the epoch.";
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
            assert!(ALL[..n].iter().all(|other| other.name != name), "{name} is there twice");
        }
    }
}
