//! Rules of the keys of `crio.conf`.

use crate::{
    Conversion, Part, Rule,
    rule::{becomes, part, unneeded, unserved},
};

use super::registries::INSECURE;

const STORAGE: &str = "Pinion has a store of its own in `data_dir`; storage.conf is not read";
const WIPE: &str = "containers end with a reboot, and images are verified when they are used; nothing is wiped";
const STREAMING_TLS: &str = "streaming is served on a loopback address, without TLS; the kubelet relays it over TLS";
const CONMON: &str = "Pinion does not run conmon; `pinmon` is the parent of all containers";
const IRQ: &str = "interrupts are not balanced by Pinion";
const MOUNTS: &str = "mounts for all containers are not served";
const USERNS: &str = "a pod requests a user namespace (hostUsers: false), and the kubelet chooses the ids";
const RUNTIME_PROGRAM: &str = "Pinion runs containers itself; devices of vendors are requested by CDI";
const ANNOTATIONS: &str = "annotations do not change containers, so none is allowed or applied";
const PAUSE: &str = "pods do not have a pause container";
const SIGNATURES: &str = "signatures of images are not verified";

/// Rules of `[crio]` and `[crio.api]`.
pub(super) const ROOT: &[Rule] = &[
    unneeded("crio.root", "'/var/lib/containers/storage'", STORAGE),
    unneeded("crio.runroot", "'/run/containers/storage'", STORAGE),
    unneeded("crio.imagestore", "''", STORAGE),
    unneeded("crio.storage_driver", "''", STORAGE),
    unneeded("crio.storage_option", "[]", STORAGE),
    unneeded("crio.log_dir", "'/var/log/crio/pods'", "the log of a container is where the kubelet requests it"),
    unneeded("crio.version_file", "'/var/run/crio/version'", WIPE),
    unneeded("crio.version_file_persist", "''", WIPE),
    unneeded("crio.internal_wipe", "true", WIPE),
    unserved("crio.internal_repair", "true", "content that is damaged is always repaired"),
    unneeded("crio.clean_shutdown_file", "'/var/lib/crio/clean.shutdown'", WIPE),
    unneeded(
        "crio.api.listen",
        "'/var/run/crio/crio.sock'",
        "Pinion serves the CRI at `socket`; the kubelet's containerRuntimeEndpoint must name it",
    ),
    part("crio.api.stream_address", "'127.0.0.1'", "streaming.address", Part::Host),
    part("crio.api.stream_port", "'0'", "streaming.address", Part::Port),
    unserved("crio.api.stream_enable_tls", "false", STREAMING_TLS),
    becomes("crio.api.stream_idle_timeout", "''", "streaming.idle_timeout", Conversion::Duration),
    unneeded("crio.api.stream_tls_cert", "''", STREAMING_TLS),
    unneeded("crio.api.stream_tls_key", "''", STREAMING_TLS),
    unneeded("crio.api.stream_tls_ca", "''", STREAMING_TLS),
    unneeded("crio.api.grpc_max_send_msg_size", "83886080", "the kubelet accepts 16 MiB"),
    unneeded("crio.api.grpc_max_recv_msg_size", "83886080", "the kubelet sends at most 16 MiB"),
];

/// Rules of `[crio.runtime]`.
pub(super) const RUNTIME: &[Rule] = &[
    becomes("crio.runtime.default_ulimits", "[]", "containers.default_ulimits", Conversion::Same),
    unneeded("crio.runtime.no_pivot", "false", "the root is always changed by pivot_root"),
    unserved("crio.runtime.decryption_keys_path", "'/etc/crio/keys/'", "encrypted images cannot be pulled"),
    unneeded("crio.runtime.conmon", "''", CONMON),
    unneeded("crio.runtime.conmon_cgroup", "''", CONMON),
    unneeded("crio.runtime.conmon_env", "[]", CONMON),
    becomes("crio.runtime.default_env", "[]", "containers.default_env", Conversion::Same),
    unserved("crio.runtime.selinux", "false", "SELinux is used if the node has it enabled"),
    unserved("crio.runtime.seccomp_profile", "''", "the default profile is built in; a pod names another one"),
    unserved(
        "crio.runtime.apparmor_profile",
        "'crio-default'",
        "the default profile is built in; a pod names another one",
    ),
    unserved("crio.runtime.blockio_config_file", "''", "classes of block I/O are not served"),
    unserved("crio.runtime.blockio_reload", "false", "classes of block I/O are not served"),
    unserved("crio.runtime.irqbalance_config_file", "'/etc/sysconfig/irqbalance'", IRQ),
    unserved("crio.runtime.irqbalance_config_restore_file", "'/etc/sysconfig/orig_irq_banned_cpus'", IRQ),
    unserved("crio.runtime.rdt_config_file", "''", "classes of RDT are not served, except those of CDI devices"),
    becomes("crio.runtime.cgroup_manager", "'systemd'", "cgroup.driver", Conversion::Same),
    unserved("crio.runtime.separate_pull_cgroup", "''", "images are pulled in the cgroup of the daemon"),
    becomes(
        "crio.runtime.default_capabilities",
        "['CHOWN', 'DAC_OVERRIDE', 'FSETID', 'FOWNER', 'SETGID', 'SETUID', 'SETPCAP', 'NET_BIND_SERVICE', 'KILL']",
        "containers.default_capabilities",
        Conversion::Same,
    ),
    unserved(
        "crio.runtime.add_inheritable_capabilities",
        "false",
        "only ambient capabilities are inheritable (CVE-2022-24769)",
    ),
    becomes("crio.runtime.default_sysctls", "[]", "containers.default_sysctls", Conversion::Sysctls),
    unserved("crio.runtime.allowed_devices", "['/dev/fuse', '/dev/net/tun']", ANNOTATIONS),
    unserved(
        "crio.runtime.additional_devices",
        "[]",
        "devices for all containers are not served; request them by CDI or a device plugin",
    ),
    becomes("crio.runtime.cdi_spec_dirs", "['/etc/cdi', '/var/run/cdi']", "cdi.dirs", Conversion::Same),
    becomes(
        "crio.runtime.device_ownership_from_security_context",
        "false",
        "containers.device_ownership_from_security_context",
        Conversion::Same,
    ),
    unserved(
        "crio.runtime.hooks_dir",
        "['/usr/share/containers/oci/hooks.d']",
        "hooks of oci-hooks(5) are not served; CDI devices may have hooks",
    ),
    unserved("crio.runtime.default_mounts", "[]", MOUNTS),
    unserved("crio.runtime.default_mounts_file", "''", MOUNTS),
    becomes("crio.runtime.pids_limit", "-1", "containers.pids_limit", Conversion::Limit),
    becomes("crio.runtime.log_size_max", "-1", "containers.log_size_max", Conversion::Limit),
    unserved("crio.runtime.log_to_journald", "false", "output is written to the log that the kubelet requests only"),
    unneeded("crio.runtime.container_exits_dir", "'/var/run/crio/exits'", CONMON),
    unneeded("crio.runtime.container_attach_socket_dir", "'/var/run/crio'", CONMON),
    unserved("crio.runtime.bind_mount_prefix", "''", "Pinion runs on the node, not in a container"),
    unserved("crio.runtime.read_only", "false", "set readOnlyRootFilesystem in the security context of containers"),
    becomes("crio.runtime.log_level", "'info'", "log.level", Conversion::Level),
    unserved("crio.runtime.log_filter", "''", "`log.level` selects messages by module"),
    unserved("crio.runtime.uid_mappings", "''", USERNS),
    unserved("crio.runtime.gid_mappings", "''", USERNS),
    unserved("crio.runtime.minimum_mappable_uid", "-1", USERNS),
    unserved("crio.runtime.minimum_mappable_gid", "-1", USERNS),
    unneeded("crio.runtime.ctr_stop_timeout", "30", "the kubelet requests the grace period of each stop"),
    unneeded("crio.runtime.drop_infra_ctr", "true", "pods do not have an infra container"),
    unneeded("crio.runtime.infra_ctr_cpuset", "''", "pods do not have an infra container"),
    unserved("crio.runtime.shared_cpuset", "''", ANNOTATIONS),
    unneeded(
        "crio.runtime.namespaces_dir",
        "'/var/run'",
        "network namespaces are pinned in `netns_dir`; for the others set `namespaces_dir`",
    ),
    unneeded("crio.runtime.pinns_path", "''", "Pinion creates namespaces itself"),
    unneeded("crio.runtime.enable_criu_support", "true", "checkpoints are possible if `criu` is installed"),
    unneeded("crio.runtime.enable_pod_events", "false", "events of containers and pods are always sent"),
    unneeded(
        "crio.runtime.default_runtime",
        "'crun'",
        "Pinion runs containers itself, under the name of the default handler",
    ),
    unserved(
        "crio.runtime.absent_mount_sources_to_reject",
        "[]",
        "a directory that is absent is created, as the kubelet expects",
    ),
    unserved("crio.runtime.hostnetwork_disable_selinux", "true", "labels follow the security context of the pod"),
    unserved("crio.runtime.disable_hostport_mapping", "false", "host ports of the built-in network are always mapped"),
    unserved("crio.runtime.timezone", "''", "set TZ in `containers.default_env`"),
];

/// Rules of runtime handlers and workloads.
pub(super) const HANDLERS: &[Rule] = &[
    unserved("crio.runtime.runtimes.*.runtime_path", "''", RUNTIME_PROGRAM),
    unserved("crio.runtime.runtimes.*.runtime_type", "'oci'", RUNTIME_PROGRAM),
    unneeded("crio.runtime.runtimes.*.runtime_root", "''", RUNTIME_PROGRAM),
    unserved("crio.runtime.runtimes.*.runtime_config_path", "''", RUNTIME_PROGRAM),
    unneeded("crio.runtime.runtimes.*.inherit_default_runtime", "false", RUNTIME_PROGRAM),
    unserved(
        "crio.runtime.runtimes.*.privileged_without_host_devices",
        "false",
        "a privileged container has the devices of the node",
    ),
    unserved("crio.runtime.runtimes.*.allowed_annotations", "[]", ANNOTATIONS),
    unneeded("crio.runtime.runtimes.*.monitor_path", "''", CONMON),
    unneeded("crio.runtime.runtimes.*.monitor_cgroup", "''", CONMON),
    unneeded("crio.runtime.runtimes.*.monitor_exec_cgroup", "''", CONMON),
    unneeded("crio.runtime.runtimes.*.monitor_env", "[]", CONMON),
    unneeded("crio.runtime.runtimes.*.platform_runtime_paths.*", "", RUNTIME_PROGRAM),
    unneeded("crio.runtime.runtimes.*.platform_runtime_paths", "{}", RUNTIME_PROGRAM),
    unserved("crio.runtime.runtimes.*.runtime_pull_image", "false", "images are pulled by Pinion"),
    unneeded(
        "crio.runtime.runtimes.*.container_min_memory",
        "''",
        "a container starts with little more memory than its program needs",
    ),
    unneeded(
        "crio.runtime.runtimes.*.no_sync_log",
        "false",
        "logs are not synchronized to disk at the exit of a container",
    ),
    unserved("crio.runtime.runtimes.*.default_annotations.*", "", ANNOTATIONS),
    unserved("crio.runtime.runtimes.*.default_annotations", "{}", ANNOTATIONS),
    unserved("crio.runtime.workloads.*.**", "", ANNOTATIONS),
];

/// Rules of all other tables.
pub(super) const OTHERS: &[Rule] = &[
    unserved("crio.image.default_transport", "'docker://'", "images are pulled from registries only"),
    becomes("crio.image.global_auth_file", "''", "registries.auth_file", Conversion::Same),
    unneeded("crio.image.pause_image", "'registry.k8s.io/pause:3.10'", PAUSE),
    unneeded("crio.image.pause_image_auth_file", "''", PAUSE),
    unneeded("crio.image.pause_command", "'/pause'", PAUSE),
    becomes("crio.image.pinned_images", "[]", "images.pinned", Conversion::Same),
    unserved("crio.image.signature_policy", "''", SIGNATURES),
    unserved("crio.image.signature_policy_dir", "'/etc/crio/policies'", SIGNATURES),
    unserved("crio.image.insecure_registries", "[]", INSECURE),
    unserved(
        "crio.image.image_volumes",
        "'mkdir'",
        "volumes that an image declares are always directories of the container",
    ),
    unneeded(
        "crio.image.big_files_temporary_dir",
        "''",
        "temporary files are in `data_dir`, on the file system of the images",
    ),
    unneeded("crio.image.auto_reload_registries", "false", "changed files are always read again"),
    unneeded(
        "crio.image.pull_progress_timeout",
        "'0s'",
        "a download without progress is detected by its rate: `registries.min_bytes_per_second`",
    ),
    unserved("crio.image.oci_artifact_mount_support", "true", "images can be mounted as volumes"),
    unserved("crio.network.cni_default_network", "''", "one CNI configuration is used: the first by name"),
    becomes("crio.network.network_dir", "'/etc/cni/net.d/'", "network.cni_conf_dir", Conversion::Same),
    becomes("crio.network.plugin_dir", "''", "network.cni_bin_dirs", Conversion::Item),
    becomes("crio.network.plugin_dirs", "['/opt/cni/bin/']", "network.cni_bin_dirs", Conversion::Same),
    unneeded(
        "crio.network.included_pod_metrics",
        "[]",
        "`crio config` prints it in this table; all metrics of pods are always served",
    ),
    part("crio.metrics.enable_metrics", "false", "metrics.address", Part::Enabled),
    part("crio.metrics.metrics_host", "'127.0.0.1'", "metrics.address", Part::Host),
    part("crio.metrics.metrics_port", "9090", "metrics.address", Part::Port),
    unneeded(
        "crio.metrics.metrics_collectors",
        "",
        "all metrics are always collected; their names differ (docs/metrics.md)",
    ),
    unserved("crio.metrics.metrics_socket", "''", "metrics are served on an address"),
    unserved("crio.metrics.metrics_cert", "''", "metrics are served without TLS"),
    unserved("crio.metrics.metrics_key", "''", "metrics are served without TLS"),
    part("crio.tracing.enable_tracing", "false", "tracing.endpoint", Part::Enabled),
    part("crio.tracing.tracing_endpoint", "'127.0.0.1:4317'", "tracing.endpoint", Part::Address),
    becomes("crio.tracing.tracing_sampling_rate_per_million", "", "tracing.sample_ratio", Conversion::Millionth),
    unneeded("crio.stats.stats_collection_period", "0", "statistics are measured when they are requested"),
    unneeded("crio.stats.collection_period", "0", "statistics are measured when they are requested"),
    unneeded("crio.stats.included_pod_metrics", "[]", "all metrics of pods are always served"),
    becomes("crio.nri.enable_nri", "true", "nri.enable", Conversion::Same),
    becomes("crio.nri.nri_listen", "'/var/run/nri/nri.sock'", "nri.socket_path", Conversion::Same),
    becomes("crio.nri.nri_plugin_dir", "'/opt/nri/plugins'", "nri.plugin_path", Conversion::Same),
    becomes("crio.nri.nri_plugin_config_dir", "'/etc/nri/conf.d'", "nri.plugin_config_path", Conversion::Same),
    becomes(
        "crio.nri.nri_plugin_registration_timeout",
        "'5s'",
        "nri.plugin_registration_timeout",
        Conversion::Duration,
    ),
    becomes("crio.nri.nri_plugin_request_timeout", "'2s'", "nri.plugin_request_timeout", Conversion::Duration),
    becomes("crio.nri.nri_disable_connections", "false", "nri.disable_connections", Conversion::Same),
];
