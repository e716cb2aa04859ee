//! Rules of the keys outside of plugins, and of the plugins that are servers.

use crate::{
    Conversion, Rule,
    rule::{becomes, unneeded, unserved},
};

const SOCKET: &str = "Pinion serves the CRI at `socket`; the kubelet's containerRuntimeEndpoint must name it";
const API: &str = "Pinion does not have containerd's API, only the CRI and its own";
const PRIVATE: &str = "the socket has mode 0600 and belongs to root";
const TCP: &str = "Pinion does not serve its API over TCP";
const STREAM: &str = "Pinion does not run programs to process layers; encrypted layers cannot be pulled";

/// Rules of the keys outside of plugins of versions 2 and 3, and of `io.containerd.server.v1` of version 4.
pub(super) const RULES: &[Rule] = &[
    unneeded("version", "4", "the format of the file"),
    unneeded("root", "'/var/lib/containerd'", "Pinion has a directory of its own, `data_dir`"),
    unneeded("state", "'/run/containerd'", "Pinion has a directory of its own, `state_dir`"),
    unneeded("temp", "", "temporary files are in `data_dir`, on the file system of the images"),
    unneeded("plugin_dir", "", "Pinion does not load plugins"),
    unneeded("disabled_plugins", "", "Pinion does not have plugins that could be disabled"),
    unneeded("required_plugins", "", "Pinion does not have plugins that could be missing"),
    unneeded("oom_score", "0", "the unit pinion.service sets OOMScoreAdjust; `pinmon` protects itself"),
    unneeded("imports", "['/etc/containerd/conf.d/*.toml']", "the imported files are translated, too"),
    becomes("debug.level", "'info'", "log.level", Conversion::Level),
    unserved("debug.format", "''", "set `log.format` to human or json"),
    unneeded("debug.log_trace_id", "false", "log lines of requests have the trace's id if tracing is enabled"),
    unneeded("debug.address", "''", API),
    unneeded("debug.uid", "0", API),
    unneeded("debug.gid", "0", API),
    unneeded("grpc.address", "'/run/containerd/containerd.sock'", SOCKET),
    unserved("grpc.uid", "0", PRIVATE),
    unserved("grpc.gid", "0", PRIVATE),
    unneeded("grpc.max_recv_message_size", "16777216", "16 MiB, as the kubelet's"),
    unneeded("grpc.max_send_message_size", "16777216", "16 MiB, as the kubelet's"),
    unserved("grpc.tcp_address", "''", TCP),
    unneeded("grpc.tcp_tls_ca", "''", TCP),
    unneeded("grpc.tcp_tls_cert", "''", TCP),
    unneeded("grpc.tcp_tls_key", "''", TCP),
    unneeded("grpc.tcp_tls_common_name", "''", TCP),
    unneeded("ttrpc.address", "''", API),
    unneeded("ttrpc.uid", "0", API),
    unneeded("ttrpc.gid", "0", API),
    becomes("metrics.address", "''", "metrics.address", Conversion::Same),
    unneeded("metrics.grpc_histogram", "false", "durations of requests are always histograms"),
    unserved("cgroup.path", "''", "the unit of the daemon decides its cgroup"),
    unneeded("timeouts.*", "", "times of containerd's shims and tasks; Pinion does not have them"),
    unneeded("stream_processors.*.**", "", STREAM),
    unserved("proxy_plugins.*.type", "", "snapshotters and content stores of other programs are not served"),
    unneeded("proxy_plugins.*.**", "", "see `type`"),
    unneeded("plugins.\"io.containerd.server.v1.debug\".**", "", API),
    unneeded("plugins.\"io.containerd.server.v1.grpc\".address", "'/run/containerd/containerd.sock'", SOCKET),
    unserved("plugins.\"io.containerd.server.v1.grpc\".uid", "0", PRIVATE),
    unserved("plugins.\"io.containerd.server.v1.grpc\".gid", "0", PRIVATE),
    unneeded("plugins.\"io.containerd.server.v1.grpc\".max_recv_message_size", "16777216", "16 MiB, as the kubelet's"),
    unneeded("plugins.\"io.containerd.server.v1.grpc\".max_send_message_size", "16777216", "16 MiB, as the kubelet's"),
    unserved("plugins.\"io.containerd.server.v1.grpc-tcp\".address", "''", TCP),
    unneeded("plugins.\"io.containerd.server.v1.grpc-tcp\".*", "", TCP),
    becomes("plugins.\"io.containerd.server.v1.metrics\".address", "''", "metrics.address", Conversion::Same),
    unneeded("plugins.\"io.containerd.server.v1.ttrpc\".*", "", API),
    unneeded(
        "plugins.\"io.containerd.metrics.v1.grpc-prometheus\".grpc_histogram",
        "false",
        "durations of requests are always histograms",
    ),
];
