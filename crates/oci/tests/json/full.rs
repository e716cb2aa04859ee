//! A spec in which every property has a value. All fields are listed, so that the compiler reports a missing property.

use std::collections::BTreeMap;

use oci::{
    BlockIo, Capabilities, Cpu, Device, DeviceKind, DeviceRule, ExecCpuAffinity, Hook, Hooks, HugepageLimit, IdMapping,
    IntelRdt, IoPriority, Linux, Memory, MemoryPolicy, Mount, Namespace, NamespaceType, NetDevice, Network,
    NetworkPriority, Personality, Pids, Process, Rdma, Resources, Rlimit, Root, Scheduler, Seccomp, SeccompArg, Spec,
    SyscallRule, ThrottleDevice, TimeOffset, User, WeightDevice,
};

pub(crate) fn spec() -> Spec {
    Spec {
        oci_version: "1.3.0".into(),
        root: Some(Root { path: "rootfs".into(), readonly: true }),
        process: Some(process()),
        hostname: text("host"),
        domainname: text("domain"),
        mounts: vec![Mount {
            destination: "/tmp".into(),
            kind: text("tmpfs"),
            source: text("tmpfs"),
            options: list("ro"),
            uid_mappings: mappings(),
            gid_mappings: mappings(),
        }],
        hooks: Some(Hooks {
            prestart: hooks(),
            create_runtime: hooks(),
            create_container: hooks(),
            start_container: hooks(),
            poststart: hooks(),
            poststop: hooks(),
        }),
        annotations: map("name", "value".to_owned()),
        linux: Some(linux()),
    }
}

fn process() -> Process {
    Process {
        terminal: true,
        console_size: Some(oci::TerminalSize { height: 24, width: 80 }),
        user: User { uid: 1, gid: 2, umask: Some(0o22), additional_gids: vec![3] },
        args: list("/bin/true"),
        env: list("A=b"),
        cwd: "/".into(),
        capabilities: Some(Capabilities {
            bounding: list("CAP_KILL"),
            effective: list("CAP_KILL"),
            inheritable: list("CAP_KILL"),
            permitted: list("CAP_KILL"),
            ambient: list("CAP_KILL"),
        }),
        rlimits: vec![Rlimit { kind: "RLIMIT_NOFILE".into(), soft: 1, hard: 2 }],
        no_new_privileges: true,
        apparmor_profile: text("profile"),
        oom_score_adj: Some(1),
        selinux_label: text("label"),
        io_priority: Some(IoPriority { class: "IOPRIO_CLASS_BE".into(), priority: 1 }),
        scheduler: Some(Scheduler {
            policy: "SCHED_DEADLINE".into(),
            nice: 1,
            priority: 2,
            flags: list("SCHED_FLAG_RESET_ON_FORK"),
            runtime: 3,
            deadline: 4,
            period: 5,
        }),
        exec_cpu_affinity: Some(ExecCpuAffinity { initial: text("0"), last: text("1") }),
    }
}

fn linux() -> Linux {
    Linux {
        uid_mappings: mappings(),
        gid_mappings: mappings(),
        sysctl: map("net.core.somaxconn", "1".to_owned()),
        resources: Some(resources()),
        cgroups_path: text("/group"),
        namespaces: vec![Namespace { kind: NamespaceType::Pid, path: text("/proc/1/ns/pid") }],
        devices: vec![Device {
            path: "/dev/x".into(),
            kind: DeviceKind::Char,
            major: 1,
            minor: 3,
            file_mode: Some(0o600),
            uid: Some(1),
            gid: Some(2),
        }],
        seccomp: Some(seccomp()),
        rootfs_propagation: text("rslave"),
        masked_paths: list("/proc/kcore"),
        readonly_paths: list("/proc/sys"),
        mount_label: text("label"),
        personality: Some(Personality { domain: "LINUX".into(), flags: list("flag") }),
        time_offsets: map("boottime", TimeOffset { secs: 1, nanosecs: 2 }),
        intel_rdt: Some(IntelRdt {
            clos_id: text("class"),
            schemata: list("L3:0=f"),
            l3_cache_schema: text("L3:0=f"),
            mem_bw_schema: text("MB:0=20"),
            enable_monitoring: true,
            enable_cmt: true,
            enable_mbm: true,
        }),
        memory_policy: Some(MemoryPolicy {
            mode: "MPOL_BIND".into(),
            nodes: "0".into(),
            flags: list("MPOL_F_STATIC_NODES"),
        }),
        net_devices: map("eth1", NetDevice { name: text("eth0") }),
    }
}

fn resources() -> Resources {
    Resources {
        devices: vec![DeviceRule { allow: true, kind: text("c"), major: Some(1), minor: Some(3), access: text("rwm") }],
        memory: Some(Memory {
            limit: Some(1),
            reservation: Some(2),
            swap: Some(3),
            kernel: Some(4),
            kernel_tcp: Some(5),
            swappiness: Some(6),
            disable_oom_killer: Some(true),
            use_hierarchy: Some(true),
            check_before_update: Some(true),
        }),
        cpu: Some(Cpu {
            shares: Some(2),
            quota: Some(3),
            burst: Some(4),
            period: Some(5),
            realtime_runtime: Some(6),
            realtime_period: Some(7),
            cpus: text("0"),
            mems: text("0"),
            idle: Some(1),
        }),
        pids: Some(Pids { limit: Some(7) }),
        block_io: Some(BlockIo {
            weight: Some(10),
            leaf_weight: Some(11),
            weight_device: vec![WeightDevice { major: 8, minor: 1, weight: Some(10), leaf_weight: Some(11) }],
            throttle_read_bps_device: throttle(),
            throttle_write_bps_device: throttle(),
            throttle_read_iops_device: throttle(),
            throttle_write_iops_device: throttle(),
        }),
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 1 }],
        network: Some(Network {
            class_id: Some(1),
            priorities: vec![NetworkPriority { name: "eth0".into(), priority: 1 }],
        }),
        rdma: map("mlx5_0", Rdma { hca_handles: Some(1), hca_objects: Some(2) }),
        unified: map("memory.high", "1".to_owned()),
    }
}

fn seccomp() -> Seccomp {
    Seccomp {
        default_action: "SCMP_ACT_ERRNO".into(),
        default_errno_ret: Some(1),
        architectures: list("SCMP_ARCH_X86_64"),
        flags: Some(list("SECCOMP_FILTER_FLAG_LOG")),
        listener_path: text("/run/agent"),
        listener_metadata: text("metadata"),
        syscalls: vec![SyscallRule {
            names: list("getcwd"),
            action: "SCMP_ACT_ERRNO".into(),
            errno_ret: Some(1),
            args: vec![SeccompArg { index: 1, value: 2, value_two: 3, op: "SCMP_CMP_MASKED_EQ".into() }],
        }],
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn list(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

fn map<T>(name: &str, value: T) -> BTreeMap<String, T> {
    [(name.to_owned(), value)].into()
}

fn mappings() -> Vec<IdMapping> {
    vec![IdMapping { container_id: 1, host_id: 2, size: 3 }]
}

fn hooks() -> Vec<Hook> {
    vec![Hook { path: "/bin/true".into(), args: list("true"), env: list("A=b"), timeout: Some(1) }]
}

fn throttle() -> Vec<ThrottleDevice> {
    vec![ThrottleDevice { major: 8, minor: 1, rate: 1 }]
}
