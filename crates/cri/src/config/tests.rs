use cri_proto::v1;
use pod::{PidMode, SeccompChoice, UserChoice};

mod fields;

use super::{container, limits, sandbox, signal};

fn pod() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "u".into(),
            namespace: "default".into(),
            attempt: 1,
        }),
        ..Default::default()
    }
}

fn plain() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "busybox".into(), ..Default::default() }),
        ..Default::default()
    }
}

fn with_security(change: impl FnOnce(&mut v1::LinuxContainerSecurityContext)) -> v1::ContainerConfig {
    let mut security = v1::LinuxContainerSecurityContext::default();
    change(&mut security);
    v1::ContainerConfig {
        linux: Some(v1::LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
        ..plain()
    }
}

#[track_caller]
fn assert_pod_refused(change: impl FnOnce(&mut v1::PodSandboxConfig), field: &str) {
    let mut message = pod();
    change(&mut message);
    let failure = sandbox(message, String::new()).expect_err("must be refused").to_string();
    assert!(failure.starts_with(&format!("InvalidArgument: {field}: ")), "{failure:?} does not name {field}");
}

#[track_caller]
fn assert_refused(message: v1::ContainerConfig, field: &str) {
    let failure = container(message).expect_err("must be refused").to_string();
    assert!(failure.starts_with(&format!("InvalidArgument: {field}: ")), "{failure:?} does not name {field}");
}

#[test]
fn a_minimal_pod_is_valid() {
    let config = sandbox(pod(), String::new()).expect("valid");
    assert_eq!((config.name.name.as_str(), config.name.attempt), ("web", 1));
    assert_eq!(config.pid, PidMode::Pod);
    assert!(config.log_directory.is_none() && config.ports.is_empty());
}

#[test]
fn an_invalid_pod_is_refused_by_field() {
    assert_pod_refused(|m| m.metadata = None, "config.metadata");
    assert_pod_refused(|m| m.metadata.as_mut().expect("set").name.clear(), "config.metadata.name");
    assert_pod_refused(|m| m.metadata.as_mut().expect("set").name = "../up".into(), "config.metadata.name");
    assert_pod_refused(|m| m.hostname = "a b".into(), "config.hostname");
    assert_pod_refused(|m| m.hostname = "x".repeat(65), "config.hostname");
    assert_pod_refused(|m| m.log_directory = "logs".into(), "config.log_directory");
    assert_pod_refused(|m| m.log_directory = "/var/../etc".into(), "config.log_directory");
    let port = |container_port, host_port, host_ip: &str| v1::PortMapping {
        container_port,
        host_port,
        host_ip: host_ip.into(),
        protocol: 0,
    };
    assert_pod_refused(|m| m.port_mappings = vec![port(80, 70000, "")], "config.port_mappings[0].host_port");
    assert_pod_refused(|m| m.port_mappings = vec![port(0, 80, "")], "config.port_mappings[0].container_port");
    assert_pod_refused(|m| m.port_mappings = vec![port(80, 80, "nowhere")], "config.port_mappings[0].host_ip");
    let dns = |server: &str, search: &str| {
        Some(v1::DnsConfig { servers: vec![server.into()], searches: vec![search.into()], options: vec![] })
    };
    assert_pod_refused(|m| m.dns_config = dns("ns1", "a"), "config.dns_config.servers[0]");
    assert_pod_refused(|m| m.dns_config = dns("10.0.0.1", "a\nnameserver 6.6.6.6"), "config.dns_config.searches[0]");
    let linux = |cgroup_parent: &str| {
        Some(v1::LinuxPodSandboxConfig { cgroup_parent: cgroup_parent.into(), ..Default::default() })
    };
    assert_pod_refused(|m| m.linux = linux("/a\0b"), "config.linux.cgroup_parent");
}

#[test]
fn ports_without_a_host_port_are_omitted() {
    let port = |host_port| v1::PortMapping { container_port: 80, host_port, ..Default::default() };
    let config = sandbox(v1::PodSandboxConfig { port_mappings: vec![port(0), port(8080)], ..pod() }, String::new())
        .expect("valid");
    assert_eq!(config.ports.iter().map(|p| p.host_port).collect::<Vec<_>>(), [8080]);
}

#[test]
fn invalid_namespaces_are_refused() {
    let with = |options: v1::NamespaceOption| {
        let security = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        Some(v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() })
    };
    let at = "config.linux.security_context.namespace_options";
    let options = v1::NamespaceOption::default;
    assert_pod_refused(
        |m| m.linux = with(v1::NamespaceOption { network: v1::NamespaceMode::Container.into(), ..options() }),
        &format!("{at}.network"),
    );
    assert_pod_refused(
        |m| m.linux = with(v1::NamespaceOption { pid: v1::NamespaceMode::Target.into(), ..options() }),
        &format!("{at}.pid"),
    );
    assert_pod_refused(|m| m.linux = with(v1::NamespaceOption { ipc: 9, ..options() }), &format!("{at}.ipc"));
    let user = v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), ..Default::default() };
    assert_pod_refused(
        |m| m.linux = with(v1::NamespaceOption { userns_options: Some(user), ..options() }),
        &format!("{at}.userns_options.uids"),
    );
}

#[test]
fn user_namespace_mappings_are_validated() {
    let range = |container_id, host_id, length| v1::IdMapping { container_id, host_id, length };
    let good = || vec![range(0, 65536, 1000), range(1000, 200_000, 64_536)];
    let pod_with = |mode: v1::NamespaceMode,
                    uids: Vec<v1::IdMapping>,
                    change: fn(&mut v1::LinuxSandboxSecurityContext)| {
        let user = v1::UserNamespace {
            mode: mode.into(),
            uids,
            gids: if mode == v1::NamespaceMode::Pod { good() } else { vec![] },
        };
        let options = v1::NamespaceOption { userns_options: Some(user), ..Default::default() };
        let mut security = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        change(&mut security);
        let linux = v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() };
        sandbox(v1::PodSandboxConfig { linux: Some(linux), ..pod() }, String::new())
    };
    let keep: fn(&mut v1::LinuxSandboxSecurityContext) = |_| {};
    let maps = pod_with(v1::NamespaceMode::Pod, good(), keep).expect("valid").user_namespace.expect("maps");
    assert_eq!((maps.uids.len(), maps.gids[1].host_id), (2, 200_000));
    assert!(pod_with(v1::NamespaceMode::Node, vec![], keep).expect("valid").user_namespace.is_none());

    let at = "config.linux.security_context.namespace_options.userns_options";
    for (uids, field) in [
        (vec![], ".uids"),
        (vec![range(1, 65536, 10)], ".uids"),
        (vec![range(0, 65536, 0)], ".uids[0].length"),
        (vec![range(0, 0, 10)], ".uids[0].host_id"),
        (vec![range(0, u32::MAX - 5, 10)], ".uids[0].host_id"),
        (vec![range(0, 65536, 10), range(u32::MAX, 1000, 1)], ".uids[1].container_id"),
        (vec![range(0, 65536, 10), range(9, 1000, 10)], ".uids"),
        (vec![range(0, 65536, 10), range(10, 65540, 10)], ".uids"),
        (vec![range(0, 65536, 1); 341], ".uids"),
    ] {
        let failure = pod_with(v1::NamespaceMode::Pod, uids, keep).expect_err("refused");
        assert!(failure.to_string().contains(&format!("{at}{field}")), "{failure} does not name {field}");
    }
    for (mode, uids) in
        [(v1::NamespaceMode::Container, vec![]), (v1::NamespaceMode::Target, vec![]), (v1::NamespaceMode::Node, good())]
    {
        let failure = pod_with(mode, uids, keep).expect_err("refused");
        assert!(failure.to_string().contains(at), "{failure}");
    }
    let refused = |change| pod_with(v1::NamespaceMode::Pod, good(), change).expect_err("refused").to_string();
    assert!(refused(|security| security.privileged = true).contains("security_context.privileged"));
    assert!(
        refused(|s| s.namespace_options.as_mut().expect("set").pid = v1::NamespaceMode::Node.into()).contains(".pid")
    );
    assert!(
        refused(|s| s.namespace_options.as_mut().expect("set").ipc = v1::NamespaceMode::Node.into()).contains(".ipc")
    );
}

#[test]
fn an_invalid_container_is_refused_by_field() {
    assert_refused(v1::ContainerConfig { metadata: None, ..plain() }, "config.metadata");
    assert_refused(v1::ContainerConfig { image: None, ..plain() }, "config.image.image");
    assert_refused(v1::ContainerConfig { working_dir: "tmp".into(), ..plain() }, "config.working_dir");
    assert_refused(v1::ContainerConfig { log_path: "/etc/passwd".into(), ..plain() }, "config.log_path");
    assert_refused(v1::ContainerConfig { log_path: "../x".into(), ..plain() }, "config.log_path");
    assert_refused(v1::ContainerConfig { stop_signal: 99, ..plain() }, "config.stop_signal");
    let pair = |key: &str, value: &[u8]| vec![v1::KeyValue { key: key.into(), value: value.into() }];
    assert_refused(v1::ContainerConfig { envs: pair("A=B", b""), ..plain() }, "config.envs[0].key");
    assert_refused(v1::ContainerConfig { envs: pair("A", b"\xff"), ..plain() }, "config.envs[0].value");
    let mount = |container_path: &str, host_path: &str| v1::Mount {
        container_path: container_path.into(),
        host_path: host_path.into(),
        ..Default::default()
    };
    assert_refused(
        v1::ContainerConfig { mounts: vec![mount("data", "/data")], ..plain() },
        "config.mounts[0].container_path",
    );
    assert_refused(
        v1::ContainerConfig { mounts: vec![mount("/", "/data")], ..plain() },
        "config.mounts[0].container_path",
    );
    assert_refused(v1::ContainerConfig { mounts: vec![mount("/data", "")], ..plain() }, "config.mounts[0].host_path");
    let recursive = v1::Mount { recursive_read_only: true, ..mount("/data", "/data") };
    assert_refused(v1::ContainerConfig { mounts: vec![recursive], ..plain() }, "config.mounts[0].recursive_read_only");
    let device = v1::Device { host_path: "/dev/null".into(), permissions: "rx".into(), ..Default::default() };
    assert_refused(v1::ContainerConfig { devices: vec![device], ..plain() }, "config.devices[0].permissions");
}

#[test]
fn capabilities_are_validated_and_normalized() {
    let with_capabilities = |names: &[&str]| {
        with_security(|s| {
            s.capabilities = Some(v1::Capability {
                add_capabilities: names.iter().map(|n| (*n).to_owned()).collect(),
                ..Default::default()
            })
        })
    };
    let config = container(with_capabilities(&["net_raw", "CAP_SYS_ADMIN", "ALL"])).expect("valid");
    assert_eq!(config.security.add_capabilities, ["CAP_NET_RAW", "CAP_SYS_ADMIN", "ALL"]);
    assert_refused(
        with_capabilities(&["CHOWN", "CAP_NOPE"]),
        "config.linux.security_context.capabilities.add_capabilities[1]",
    );
}

#[test]
fn users_are_ids_or_names() {
    let value = |value| Some(v1::Int64Value { value });
    let choice = |change: fn(&mut v1::LinuxContainerSecurityContext)| {
        container(with_security(change)).expect("valid").security.user
    };
    assert_eq!(choice(|_| {}), UserChoice::Image);
    assert_eq!(choice(|s| s.run_as_username = "www".into()), UserChoice::Name("www".into()));
    let both = with_security(|s| (s.run_as_user, s.run_as_group) = (value(7), value(8)));
    assert_eq!(container(both).expect("valid").security.user, UserChoice::Uid { uid: 7, gid: Some(8) });
    assert_refused(with_security(|s| s.run_as_user = value(-1)), "config.linux.security_context.run_as_user");
    assert_refused(with_security(|s| s.run_as_group = value(1)), "config.linux.security_context.run_as_group");
    assert_refused(
        with_security(|s| s.supplemental_groups = vec![1 << 40]),
        "config.linux.security_context.supplemental_groups",
    );
}

#[test]
#[allow(deprecated)]
fn seccomp_is_unconfined_unless_requested() {
    let choice = |change: fn(&mut v1::LinuxContainerSecurityContext)| {
        container(with_security(change)).expect("valid").security.seccomp
    };
    assert_eq!(choice(|_| {}), SeccompChoice::Unconfined);
    assert_eq!(choice(|s| s.seccomp = Some(v1::SecurityProfile::default())), SeccompChoice::RuntimeDefault);
    assert_eq!(choice(|s| s.seccomp_profile_path = "runtime/default".into()), SeccompChoice::RuntimeDefault);
    assert_eq!(choice(|s| s.privileged = true), SeccompChoice::Unconfined);
    assert_eq!(
        choice(|s| s.seccomp_profile_path = "localhost//p.json".into()),
        SeccompChoice::Localhost("/p.json".into())
    );
    assert_refused(
        with_security(|s| s.seccomp_profile_path = "other".into()),
        "config.linux.security_context.seccomp_profile_path",
    );
    let relative = v1::SecurityProfile { profile_type: 2, localhost_ref: "p.json".into() };
    assert_refused(
        with_security(|s| s.seccomp = Some(relative)),
        "config.linux.security_context.seccomp.localhost_ref",
    );
}

#[test]
fn resources_of_zero_are_not_set() {
    let at = "linux";
    let none = limits(at, &v1::LinuxContainerResources::default()).expect("valid");
    assert_eq!(none.resources, pod::oci::Resources::default());
    let some = limits(
        at,
        &v1::LinuxContainerResources {
            cpu_shares: 512,
            memory_limit_in_bytes: 1 << 20,
            cpuset_cpus: "0-3,7".into(),
            ..Default::default()
        },
    );
    let some = some.expect("valid").resources;
    assert_eq!(some.cpu.and_then(|c| c.shares), Some(512));
    assert_eq!(some.memory.and_then(|m| m.limit), Some(1 << 20));
}

#[test]
fn invalid_resources_are_refused() {
    let zero = v1::LinuxContainerResources::default;
    let invalid = [
        (v1::LinuxContainerResources { cpu_shares: -1, ..zero() }, "cpu_shares"),
        (v1::LinuxContainerResources { cpu_quota: -2, ..zero() }, "cpu_quota"),
        (v1::LinuxContainerResources { memory_limit_in_bytes: -2, ..zero() }, "memory_limit_in_bytes"),
        (
            v1::LinuxContainerResources { memory_limit_in_bytes: 2, memory_swap_limit_in_bytes: 1, ..zero() },
            "memory_swap_limit_in_bytes",
        ),
        (v1::LinuxContainerResources { oom_score_adj: 1001, ..zero() }, "oom_score_adj"),
        (v1::LinuxContainerResources { cpuset_cpus: "3-1".into(), ..zero() }, "cpuset_cpus"),
        (v1::LinuxContainerResources { unified: [("../x".to_owned(), String::new())].into(), ..zero() }, "unified"),
    ];
    for (message, field) in invalid {
        let failure = limits("linux", &message).err().expect("must be refused").to_string();
        assert!(failure.starts_with(&format!("InvalidArgument: linux.{field}: ")), "{failure}");
    }
}

#[test]
fn signals_and_numbers_convert_both_ways() {
    assert_eq!(signal::number(v1::Signal::RuntimeDefault), None);
    let numbers = [
        (v1::Signal::Sigterm, 15),
        (v1::Signal::Sigkill, 9),
        (v1::Signal::Sigpoll, 29),
        (v1::Signal::Sigrtmin, 34),
        (v1::Signal::Sigrtminplus3, 37),
        (v1::Signal::Sigrtmaxminus1, 63),
        (v1::Signal::Sigrtmax, 64),
    ];
    for (signal, number) in numbers {
        assert_eq!(signal::number(signal), Some(number), "{signal:?}");
    }
    for number in (1..=31).chain(34..=64) {
        assert_eq!(signal::number(signal::message(number)), Some(number));
    }
}
