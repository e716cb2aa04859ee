//! Rules of the keys of plugins.

use crate::{
    Conversion, Part, Rule,
    rule::{becomes, part, unneeded, unserved},
};

const SNAPSHOTTER: &str = "layers are unpacked once, and containers mount them with overlayfs";
const AUTH: &str = "credentials belong in `registries.auth_file`, in the format of Docker's config.json";
const HUGETLB: &str = "limits of huge pages are applied if the node has the controller";
const BLOCKIO: &str = "classes of block I/O are not served";
const RDT: &str = "classes of RDT are not served, except those of CDI devices";
const RUNTIME_PROGRAM: &str = "Pinion runs containers itself; devices of vendors are requested by CDI";
const SHIM: &str = "Pinion does not have shims; `pinmon` is the parent of all containers";
const STREAMING_TLS: &str = "streaming is served on a loopback address, without TLS; the kubelet relays it over TLS";
const VALIDATOR: &str = "adjustments of NRI plugins are not validated by a second plugin";

/// Rules of `io.containerd.cri.v1.images`.
pub(super) const IMAGES: &[Rule] = &[
    unserved("plugins.\"io.containerd.cri.v1.images\".snapshotter", "'overlayfs'", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.cri.v1.images\".disable_snapshot_annotations", "true", SNAPSHOTTER),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".discard_unpacked_layers",
        "false",
        "compressed layers are kept only while something needs them",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".max_concurrent_downloads",
        "3",
        "Pinion bounds concurrent downloads itself",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".concurrent_layer_fetch_buffer",
        "0",
        "large layers are always downloaded in parallel ranges",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".image_pull_progress_timeout",
        "'5m0s'",
        "a download without progress is detected by its rate: `registries.min_bytes_per_second`",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".image_pull_with_sync_fs",
        "false",
        "a layer is always durable before its image is listed",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".stats_collect_period",
        "10",
        "statistics are measured when they are requested",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".use_local_image_pull",
        "false",
        "there is one implementation of pulls",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.images\".pinned_images.sandbox",
        "'registry.k8s.io/pause:3.10.2'",
        "pods do not have a pause container",
    ),
    becomes("plugins.\"io.containerd.cri.v1.images\".pinned_images.*", "", "images.pinned", Conversion::Item),
    becomes(
        "plugins.\"io.containerd.cri.v1.images\".registry.config_path",
        "''",
        "registries.config_dir",
        Conversion::One,
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.images\".registry.mirrors.*.endpoint",
        "",
        "registries.mirrors",
        Conversion::Named,
    ),
    unserved("plugins.\"io.containerd.cri.v1.images\".registry.configs.*.auth.*", "", AUTH),
    unserved(
        "plugins.\"io.containerd.cri.v1.images\".registry.configs.*.tls.*",
        "",
        "write it to a hosts.toml in `registries.config_dir` (ca, client, skip_verify)",
    ),
    unserved("plugins.\"io.containerd.cri.v1.images\".registry.auths.*.**", "", AUTH),
    unserved(
        "plugins.\"io.containerd.cri.v1.images\".registry.headers.*",
        "",
        "write them to a hosts.toml in `registries.config_dir`, below [host.….header]",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.images\".image_decryption.key_model",
        "'node'",
        "encrypted images cannot be pulled",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.images\".runtime_platforms.*.**",
        "",
        "an image is pulled for the platform of the node",
    ),
];

/// Rules of `io.containerd.cri.v1.runtime`.
pub(super) const RUNTIME: &[Rule] = &[
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".enable_selinux",
        "false",
        "SELinux is used if the node has it enabled",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".selinux_category_range",
        "1024",
        "categories are taken from all 1024",
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".max_container_log_line_size",
        "16384",
        "containers.log_line_max",
        Conversion::Same,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".disable_apparmor",
        "false",
        "AppArmor is used if the node has it enabled",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".restrict_oom_score_adj",
        "false",
        "a score that the kernel refuses is always replaced by the lowest possible one",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".disable_proc_mount",
        "false",
        "the kubelet requests unmasked paths per container",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".unset_seccomp_profile",
        "''",
        "a container without a profile is unconfined; set seccompDefault in the configuration of the kubelet",
    ),
    unneeded("plugins.\"io.containerd.cri.v1.runtime\".tolerate_missing_hugetlb_controller", "true", HUGETLB),
    unneeded("plugins.\"io.containerd.cri.v1.runtime\".disable_hugetlb_controller", "true", HUGETLB),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".device_ownership_from_security_context",
        "false",
        "containers.device_ownership_from_security_context",
        Conversion::Same,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".ignore_image_defined_volumes",
        "false",
        "volumes that an image declares are always directories of the container",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".netns_mounts_under_state_dir",
        "false",
        "network namespaces are pinned in `netns_dir`",
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".enable_unprivileged_ports",
        "true",
        "containers.default_sysctls",
        Conversion::SysctlIfFalse("net.ipv4.ip_unprivileged_port_start=1024"),
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".enable_unprivileged_icmp",
        "true",
        "containers.default_sysctls",
        Conversion::SysctlIfFalse("net.ipv4.ping_group_range=1 0"),
    ),
    unneeded("plugins.\"io.containerd.cri.v1.runtime\".enable_cdi", "true", "CDI is always enabled"),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".cdi_spec_dirs",
        "['/etc/cdi', '/var/run/cdi']",
        "cdi.dirs",
        Conversion::Same,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".drain_exec_sync_io_timeout",
        "'0s'",
        "ExecSync returns when the command and its processes have exited, within its timeout",
    ),
    unneeded("plugins.\"io.containerd.cri.v1.runtime\".ignore_deprecation_warnings", "[]", "warnings of containerd"),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".stats_collect_period",
        "''",
        "statistics are measured when they are requested",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".stats_retention_period",
        "''",
        "statistics are measured when they are requested",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".enable_criu",
        "true",
        "checkpoints are possible if `criu` is installed",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.default_runtime_name",
        "'runc'",
        "Pinion runs containers itself, under the name of the default handler",
    ),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.ignore_blockio_not_enabled_errors", "false", BLOCKIO),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.ignore_rdt_not_enabled_errors", "false", RDT),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.runtime_type",
        "'io.containerd.runc.v2'",
        "Pinion runs containers itself",
    ),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.runtime_path", "''", RUNTIME_PROGRAM),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.runtime_engine",
        "''",
        "Pinion runs containers itself",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.runtime_root",
        "''",
        "Pinion runs containers itself",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.pod_annotations",
        "[]",
        "annotations are not passed to a runtime",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.container_annotations",
        "[]",
        "annotations are not passed to a runtime",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.privileged_without_host_devices",
        "false",
        "a privileged container has the devices of the node",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.privileged_without_host_devices_all_devices_allowed",
        "false",
        "a privileged container has the devices of the node",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.cgroup_writable",
        "false",
        "cgroups are read-only, except in privileged containers",
    ),
    // Translated by `base_spec.rs`, also to other keys.
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.base_runtime_spec",
        "''",
        "containers.default_ulimits",
        Conversion::Same,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.cni_conf_dir",
        "''",
        "all pods have one CNI configuration",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.cni_max_conf_num",
        "0",
        "see `cni.max_conf_num`",
    ),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.snapshotter", "''", SNAPSHOTTER),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.sandboxer",
        "'podsandbox'",
        "sandboxers of other programs are not served",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.sandbox_mode",
        "'podsandbox'",
        "sandboxers of other programs are not served",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.disable_pause_image_pull",
        "false",
        "pods do not have a pause container",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.io_type",
        "''",
        "output is always read from FIFOs",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.BinaryName",
        "''",
        RUNTIME_PROGRAM,
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.SystemdCgroup",
        "false",
        "cgroup.driver",
        Conversion::SystemdDriver,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.NoNewKeyring",
        "false",
        "a container has its own session keyring",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.NoPivotRoot",
        "false",
        "the root is always changed by pivot_root",
    ),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.ShimCgroup", "''", SHIM),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.IoUid", "0", SHIM),
    unserved("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.IoGid", "0", SHIM),
    unneeded("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.Root", "''", SHIM),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.CriuPath",
        "''",
        "`criu` is found by $PATH",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.CriuImagePath",
        "''",
        "a checkpoint is written where the kubelet requests",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.CriuWorkPath",
        "''",
        "a checkpoint is written where the kubelet requests",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.*.options.*",
        "",
        "options of runtimes other than runc are not served",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.default_runtime.**",
        "",
        "was removed from containerd; use `default_runtime_name`",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.untrusted_workload_runtime.**",
        "",
        "was removed from containerd; use a RuntimeClass",
    ),
    becomes("plugins.\"io.containerd.cri.v1.runtime\".cni.bin_dir", "", "network.cni_bin_dirs", Conversion::Item),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.bin_dirs",
        "['/opt/cni/bin']",
        "network.cni_bin_dirs",
        Conversion::Same,
    ),
    becomes(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.conf_dir",
        "'/etc/cni/net.d'",
        "network.cni_conf_dir",
        Conversion::Same,
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.max_conf_num",
        "1",
        "one CNI configuration is used: the first by name",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.setup_serially",
        "false",
        "the plugins of a configuration always run one after the other",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.conf_template",
        "''",
        "CNI configurations are not generated; without one, pods use the built-in network",
    ),
    unserved(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.ip_pref",
        "''",
        "the addresses of a pod are reported in the order of the CNI result",
    ),
    unneeded(
        "plugins.\"io.containerd.cri.v1.runtime\".cni.use_internal_loopback",
        "false",
        "the loopback interface is set up by Pinion",
    ),
];

/// Rules of all other plugins.
pub(super) const OTHERS: &[Rule] = &[
    unneeded(
        "plugins.\"io.containerd.grpc.v1.cri\".disable_tcp_service",
        "true",
        "Pinion does not serve the CRI over TCP",
    ),
    part("plugins.\"io.containerd.grpc.v1.cri\".stream_server_address", "'127.0.0.1'", "streaming.address", Part::Host),
    part("plugins.\"io.containerd.grpc.v1.cri\".stream_server_port", "'0'", "streaming.address", Part::Port),
    becomes(
        "plugins.\"io.containerd.grpc.v1.cri\".stream_idle_timeout",
        "'4h0m0s'",
        "streaming.idle_timeout",
        Conversion::Duration,
    ),
    unserved("plugins.\"io.containerd.grpc.v1.cri\".enable_tls_streaming", "false", STREAMING_TLS),
    unneeded("plugins.\"io.containerd.grpc.v1.cri\".x509_key_pair_streaming.tls_cert_file", "''", STREAMING_TLS),
    unneeded("plugins.\"io.containerd.grpc.v1.cri\".x509_key_pair_streaming.tls_key_file", "''", STREAMING_TLS),
    becomes("plugins.\"io.containerd.nri.v1.nri\".disable", "false", "nri.enable", Conversion::Opposite),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".socket_path",
        "'/var/run/nri/nri.sock'",
        "nri.socket_path",
        Conversion::Same,
    ),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".plugin_path",
        "'/opt/nri/plugins'",
        "nri.plugin_path",
        Conversion::Same,
    ),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".plugin_config_path",
        "'/etc/nri/conf.d'",
        "nri.plugin_config_path",
        Conversion::Same,
    ),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".plugin_registration_timeout",
        "'5s'",
        "nri.plugin_registration_timeout",
        Conversion::Duration,
    ),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".plugin_request_timeout",
        "'2s'",
        "nri.plugin_request_timeout",
        Conversion::Duration,
    ),
    becomes(
        "plugins.\"io.containerd.nri.v1.nri\".disable_connections",
        "false",
        "nri.disable_connections",
        Conversion::Same,
    ),
    unserved("plugins.\"io.containerd.nri.v1.nri\".default_validator.enable", "false", VALIDATOR),
    unneeded("plugins.\"io.containerd.nri.v1.nri\".default_validator.*", "", VALIDATOR),
    unneeded(
        "plugins.\"io.containerd.transfer.v1.local\".max_concurrent_downloads",
        "3",
        "Pinion bounds concurrent downloads itself",
    ),
    unneeded(
        "plugins.\"io.containerd.transfer.v1.local\".concurrent_layer_fetch_buffer",
        "0",
        "large layers are always downloaded in parallel ranges",
    ),
    unneeded(
        "plugins.\"io.containerd.transfer.v1.local\".max_concurrent_uploaded_layers",
        "3",
        "Pinion does not push images",
    ),
    unneeded(
        "plugins.\"io.containerd.transfer.v1.local\".check_platform_supported",
        "false",
        "an image is pulled for the platform of the node",
    ),
    becomes("plugins.\"io.containerd.transfer.v1.local\".config_path", "''", "registries.config_dir", Conversion::One),
    unneeded(
        "plugins.\"io.containerd.transfer.v1.local\".max_concurrent_unpacks",
        "1",
        "layers are unpacked in parallel, bounded by memory",
    ),
    unserved("plugins.\"io.containerd.transfer.v1.local\".unpack_config", "", SNAPSHOTTER),
    unneeded(
        "plugins.\"io.containerd.gc.v1.scheduler\".*",
        "",
        "unused layers are removed with the image that used them",
    ),
    unneeded("plugins.\"io.containerd.metadata.v1.bolt\".*", "", "Pinion has its own index"),
    unserved(
        "plugins.\"io.containerd.image-verifier.v1.bindir\".bin_dir",
        "'/opt/containerd/image-verifier/bin'",
        "images are not verified by programs",
    ),
    unneeded("plugins.\"io.containerd.image-verifier.v1.bindir\".*", "", "see `bin_dir`"),
    unneeded(
        "plugins.\"io.containerd.internal.v1.opt\".path",
        "'/opt/containerd'",
        "Pinion does not install programs from images",
    ),
    unneeded(
        "plugins.\"io.containerd.internal.v1.tracing\".*",
        "",
        "`[tracing]` has the endpoint; containerd 2 takes it from the environment",
    ),
    unserved("plugins.\"io.containerd.tracing.processor.v1.otlp\".*", "", "set `tracing.endpoint`"),
    unneeded(
        "plugins.\"io.containerd.monitor.container.v1.restart\".*",
        "",
        "containers of the CRI are restarted by the kubelet",
    ),
    unneeded(
        "plugins.\"io.containerd.internal.v1.restart\".*",
        "",
        "containers of the CRI are restarted by the kubelet",
    ),
    unserved(
        "plugins.\"io.containerd.monitor.task.v1.cgroups\".no_prometheus",
        "false",
        "metrics of containers are those of the CRI",
    ),
    unserved(
        "plugins.\"io.containerd.monitor.v1.cgroups\".no_prometheus",
        "false",
        "metrics of containers are those of the CRI",
    ),
    unserved("plugins.\"io.containerd.service.v1.tasks-service\".blockio_config_file", "''", BLOCKIO),
    unserved("plugins.\"io.containerd.service.v1.tasks-service\".rdt_config_file", "''", RDT),
    unneeded("plugins.\"io.containerd.runtime.v2.task\".*", "", SHIM),
    unneeded("plugins.\"io.containerd.runtime.v1.linux\".*", "", SHIM),
    unneeded("plugins.\"io.containerd.shim.v1.manager\".*", "", SHIM),
    unneeded("plugins.\"io.containerd.service.v1.diff-service\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.differ.v1.erofs\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.overlayfs\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.native\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.blockfile\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.btrfs\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.devmapper\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.erofs\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.zfs\".*", "", SNAPSHOTTER),
    unneeded("plugins.\"io.containerd.snapshotter.v1.aufs\".*", "", SNAPSHOTTER),
];
