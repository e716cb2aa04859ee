use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use super::*;
use crate::{ContainerId, ErrorKind, Name, Propagation, SandboxId, Volume};

fn config() -> ContainerConfig {
    ContainerConfig {
        image: "i".into(),
        user_specified_image: "busybox".into(),
        ..ContainerConfig::minimal("c".into())
    }
}

fn sandbox() -> SandboxConfig {
    SandboxConfig {
        name: Name::default(),
        hostname: "h".into(),
        log_directory: None,
        dns: None,
        ports: vec![],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        cgroup_parent: None,
        sysctls: BTreeMap::new(),
        network: SharedMode::Pod,
        named: Default::default(),
        ipc: SharedMode::Pod,
        pid: PidMode::Container,
        user_namespace: None,
        privileged: false,
        runtime_handler: String::new(),
        resources: None,
        overhead: None,
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["a".into(), "b".into()],
        env: vec!["PATH=/bin".into(), "X=image".into()],
        working_dir: "srv".into(),
        ..ImageConfig::default()
    }
}

fn build_spec(config: ContainerConfig, image: &ImageConfig) -> Result<Spec, Error> {
    let metadata = ContainerMetadata {
        id: ContainerId::parse(&"1".repeat(64)).expect("an id"),
        sandbox: SandboxId::parse(&"2".repeat(64)).expect("an id"),
        config: Arc::new(config),
        image_id: String::new(),
        created_at: 0,
        log_path: None,
        cgroup: "/pinion/pod/id".into(),
        stop_signal: 15,
        runtime: None,
        shim: None,
        vm: None,
    };
    let nofile = Rlimit { kind: "RLIMIT_NOFILE".into(), soft: 1024, hard: 4096 };
    let sandbox = sandbox();
    let defaults = ContainerDefaults::default();
    let inputs = SpecInputs {
        metadata: &metadata,
        sandbox: &sandbox,
        image,
        user: User::default(),
        hostname: "h",
        nofile,
        defaults: &defaults,
        device_ownership: false,
        privileged_devices: PrivilegedDevices::All,
    };
    let file = || std::fs::File::open("/dev/null").map(Into::into).map_err(|e| Error::internal(e.to_string()));
    let sources = Sources { shm: &file, file: &|_| file(), volume: &|_| file() };
    let mounts = Mounts::new(&metadata.config, Vec::new(), &sources)?;
    let process = process(&inputs)?;
    build(&inputs, process, mounts.entries)
}

#[test]
fn command_and_arguments_replace_as_the_cri_specifies() {
    let args = |command: &[&str], args: &[&str]| {
        let mut config = config();
        config.command = command.iter().map(|s| (*s).to_owned()).collect();
        config.args = args.iter().map(|s| (*s).to_owned()).collect();
        build_spec(config, &image()).expect("spec").process.expect("process").args
    };
    assert_eq!(args(&[], &[]), ["/entry", "a", "b"]);
    assert_eq!(args(&[], &["c"]), ["/entry", "c"]);
    assert_eq!(args(&["/x"], &[]), ["/x"]);
    assert_eq!(args(&["/x"], &["c"]), ["/x", "c"]);
    let none = build_spec(config(), &ImageConfig::default()).expect_err("no command");
    assert_eq!(none.kind, ErrorKind::InvalidArgument);
    assert!(none.message.contains("busybox"), "{none}");
}

#[test]
fn the_request_overrides_the_environment_of_the_image() {
    let mut config = config();
    config.tty = true;
    config.env = vec![("X".into(), "mine=1".into()), ("Y".into(), String::new())];
    let process = build_spec(config, &image()).expect("spec").process.expect("process");
    assert_eq!(process.env, ["PATH=/bin", "TERM=xterm", "HOSTNAME=h", "X=mine=1", "Y="]);
    assert_eq!(process.cwd, "/srv");
    assert!(process.terminal);
}

#[test]
fn capabilities_are_added_and_dropped() {
    let caps = |add: &[&str], drop: &[&str]| {
        let mut config = config();
        config.security.add_capabilities = add.iter().map(|s| (*s).to_owned()).collect();
        config.security.drop_capabilities = drop.iter().map(|s| (*s).to_owned()).collect();
        build_spec(config, &image()).map(|s| s.process.expect("process").capabilities.expect("sets").bounding)
    };
    assert_eq!(caps(&[], &[]).expect("default").len(), 14);
    assert_eq!(caps(&["NET_ADMIN"], &["ALL"]).expect("one"), ["CAP_NET_ADMIN"]);
    assert_eq!(caps(&["all"], &["cap_kill"]).expect("but one").len(), 40);
    assert!(!caps(&[], &["KILL"]).expect("less").contains(&"CAP_KILL".to_owned()));
    assert_eq!(caps(&["NET_ADMIN"], &["NET_ADMIN"]).expect("dropped").len(), 14);
    assert!(caps(&["ALL"], &["ALL"]).expect("none").is_empty());
    let unknown = caps(&["CAP_FLY"], &[]).expect_err("unknown");
    assert_eq!(unknown.kind, ErrorKind::InvalidArgument);
    assert!(unknown.message.contains("CAP_FLY"), "{unknown}");
}

#[test]
fn ambient_capabilities_are_in_every_set() {
    let sets = |ambient: &[&str], drop: &[&str]| {
        let mut config = config();
        config.security.add_ambient_capabilities = ambient.iter().map(|s| (*s).to_owned()).collect();
        config.security.drop_capabilities = drop.iter().map(|s| (*s).to_owned()).collect();
        build_spec(config, &image()).expect("spec").process.expect("process").capabilities.expect("sets")
    };
    let one = sets(&["NET_ADMIN"], &["ALL"]);
    for set in [one.bounding, one.effective, one.permitted, one.inheritable, one.ambient] {
        assert_eq!(set, ["CAP_NET_ADMIN"]);
    }
    let none = sets(&["NET_ADMIN"], &["NET_ADMIN"]);
    assert_eq!((none.bounding.len(), none.inheritable.len(), none.ambient.len()), (14, 0, 0));
    assert_eq!(sets(&["ALL"], &["KILL"]).ambient.len(), 40);
}

#[test]
fn a_privileged_container_has_all_and_nothing_is_hidden() {
    let mut config = config();
    config.security.privileged = true;
    let spec = build_spec(config, &image()).expect("spec");
    let linux = spec.linux.expect("linux");
    assert!(linux.masked_paths.is_empty() && linux.readonly_paths.is_empty());
    assert!(linux.devices.iter().any(|device| device.path == "/dev/null"));
    assert!(linux.resources.expect("resources").devices[0].allow);
    assert!(!linux.namespaces.iter().any(|n| n.kind == NamespaceType::Cgroup));
    let sys = spec.mounts.iter().find(|m| m.destination == "/sys").expect("sys");
    assert!(sys.options.contains(&"rw".to_owned()));
}

#[test]
fn volumes_cover_default_mounts_and_outer_paths_come_first() {
    let volume = |path: &str| Volume {
        container_path: path.into(),
        host_path: PathBuf::from("/h"),
        image: None,
        options: vec![],
        uid_mappings: vec![],
        gid_mappings: vec![],
        readonly: true,
        recursive_readonly: false,
        propagation: Propagation::HostToContainer,
        selinux_relabel: false,
    };
    let mut config = config();
    config.volumes = vec![volume("/data/inner/x"), volume("/etc/hosts"), volume("/data"), volume("/dev/shm/")];
    let spec = build_spec(config, &image()).expect("spec");
    let destinations: Vec<&str> = spec.mounts.iter().map(|m| m.destination.as_str()).collect();
    assert_eq!(
        destinations[6..],
        ["/etc/hostname", "/etc/resolv.conf", "/data", "/etc/hosts", "/dev/shm/", "/data/inner/x"]
    );
    assert_eq!(spec.mounts.last().expect("one").options, ["rbind", "rslave", "ro"]);
}

#[test]
fn the_pid_namespace_of_the_node_is_used_only_on_request() {
    let has_pid = |pid| {
        let mut config = config();
        config.security.pid = pid;
        let linux = build_spec(config, &image()).expect("spec").linux.expect("linux");
        linux.namespaces.iter().any(|n| n.kind == NamespaceType::Pid)
    };
    assert!(has_pid(PidMode::Container) && has_pid(PidMode::Pod) && !has_pid(PidMode::Node));
}
