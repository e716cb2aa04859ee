//! An engine with a real monitor on a throwaway node.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use cgroup::{Group, GroupPath, Hierarchies};
use pod::{
    CgroupDriver, CgroupNames, Config, ContainerConfig, ContainerDefaults, ContainerId, ContainerState, Engine,
    GroupsPolicy, Name, NetworkConfig, PidMode, Registries, SandboxConfig, SandboxId, SeccompChoice, Security,
    SharedMode, UserChoice,
};
use testbed::{Namespaces, checkout, make_image, node_id, run_on_a_node, shell, test_name, this_test, wait_until};

/// Set for a process that runs on an existing node: the directory of that node.
const DAEMON: &str = "PINION_TEST_DAEMON";
/// Long enough for a slow machine; only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);
pub const IMAGE: &str = "test.invalid/demo:1";

/// Runs `body` on a new node.
pub fn on_a_node<B: FnOnce(Node) -> F, F: Future<Output = ()>>(body: B) {
    output_on_a_node(body);
}

/// Like [`on_a_node`]; returns the output of the test.
pub fn output_on_a_node<B: FnOnce(Node) -> F, F: Future<Output = ()>>(body: B) -> String {
    let name = test_name::<B>();
    let run = if std::env::var_os(DAEMON).is_some() { None } else { run_on_a_node(name, Namespaces::ALL) };
    let Some(run) = run else {
        let runtime = tokio::runtime::Runtime::new().expect("runtime");
        runtime.block_on(async { body(Node::new(name)).await });
        return String::new();
    };
    let is_group_left = remove_group(&cgroup(name));
    let output = run.passed();
    assert!(!is_group_left, "{name} left its cgroup behind");
    output
}

/// Returns the cgroup of the node of a test.
fn cgroup(name: &str) -> String {
    format!("/{}", node_id(name))
}

/// Removes a cgroup. Returns whether it existed.
fn remove_group(path: &str) -> bool {
    let (trees, path) = (Hierarchies::open().expect("trees"), GroupPath::parse(path).expect("path"));
    let Ok(group) = Group::open(&trees, &path) else { return false };
    let pids = group.pids().unwrap_or_default();
    group.remove().unwrap_or_else(|e| panic!("remove {path:?} ({pids:?}): {e}"));
    true
}

/// Returns the mount points and what is mounted on them.
fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // Leaves out the options of the file system, which a test may change.
    let mount = |line: &str| line.splitn(4, ' ').last().and_then(|rest| rest.split(" - ").next()).map(str::to_owned);
    table.lines().map(|line| mount(line).expect("a mount")).collect()
}

/// Builds the monitor from this checkout and returns its path.
fn monitor() -> PathBuf {
    // The toolchain is not on every machine that tests run on.
    if let Some(program) = std::env::var_os("PINION_TEST_MONITOR") {
        return program.into();
    }
    let out = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "pinmon", "--message-format", "json"])
        .args(["--profile", if cfg!(debug_assertions) { "dev" } else { "release" }])
        .current_dir(checkout("crates/pod"))
        .output()
        .expect("cargo builds the monitor");
    assert!(out.status.success(), "build pinmon: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("JSON");
    let built = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.expect("cargo reports the path of pinmon")
}

/// Directories, image and configuration of one engine.
pub struct Node {
    /// Name of the test.
    name: &'static str,
    pub dir: PathBuf,
    pub config: Config,
    mounts: Vec<String>,
    _owned: Option<tempfile::TempDir>,
}

impl Node {
    fn new(name: &'static str) -> Self {
        let owned = std::env::var_os(DAEMON).is_none().then(|| tempfile::tempdir_in("/var/tmp").expect("a directory"));
        let dir = owned.as_ref().map(|dir| dir.path().to_owned());
        let dir = dir.unwrap_or_else(|| std::env::var_os(DAEMON).expect("the node's directory").into());
        let state_dir = PathBuf::from("/run/pinion");
        let config = Config {
            network: NetworkConfig {
                cni_conf_dir: "/run/net.d".into(),
                cni_bin_dirs: vec![],
                state_dir: state_dir.join("network"),
                bridge: "pinion0".into(),
                subnet: "10.85.0.0/16".into(),
                subnet6: None,
                selectable: vec!["*".into(), "pinion".into()],
                definitions_dir: "/run/pinion-networks".into(),
                address_pools: network::DEFAULT_POOLS.map(str::to_owned).into(),
                overlay: None,
            },
            state_dir,
            data_dir: dir.join("data"),
            monitor: monitor(),
            netns_dir: "/run/netns".into(),
            namespaces_dir: None,
            default_cgroup_parent: cgroup(name),
            cgroup_driver: Some(CgroupDriver::Cgroupfs),
            cgroup_names: CgroupNames::Plain,
            registries: Registries::default(),
            netns_pool: 2,
            default_runtime_handler: String::new(),
            handlers: Vec::new(),
            shim_handlers: Vec::new(),
            vm_handlers: Vec::new(),
            wasm: None,
            cdi_dirs: vec![dir.join("cdi-etc"), dir.join("cdi-run")],
            plugins: None,
            defaults: ContainerDefaults::default(),
            pinned_images: vec![],
            device_ownership_from_security_context: false,
            log_line_max: 16 << 10,
            log_size_max: None,
            exec_sync_output_max: 16 << 20,
        };
        Self { name, dir, config, mounts: mounts(), _owned: owned }
    }

    /// Runs this test again in a process on this node that is killed at a failpoint. Returns whether it was killed.
    pub fn crash(&self, at: &str) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let out = this_test(self.name)
            .env(DAEMON, &self.dir)
            .env("PINION_CRASH_AT", at)
            .output()
            .expect("the test program runs");
        let output = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() || out.status.signal() == Some(9), "{at}: {}\n{output}", out.status);
        out.status.signal() == Some(9)
    }

    /// Opens an engine on this node's directories.
    pub async fn open(&self) -> Engine {
        Engine::open(self.config.clone()).await.expect("the engine opens")
    }

    /// Opens an engine and imports the demonstration image.
    pub async fn open_with_image(&self) -> Engine {
        let engine = self.open().await;
        let directory = self.dir.join("image");
        fs::create_dir(&directory).expect("directory");
        make_image(&directory, IMAGE);
        let mut archive = tokio::fs::File::open(directory.join("image.tar")).await.expect("archive");
        engine.images().import(&mut archive).await.expect("import");
        engine
    }

    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub fn sandbox(&self, name: &str) -> SandboxConfig {
        SandboxConfig {
            name: Name { name: name.into(), uid: format!("uid-{name}"), namespace: "default".into(), attempt: 0 },
            hostname: name.into(),
            log_directory: Some(self.logs()),
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

    /// Creates and starts a container and returns its id.
    pub async fn run(&self, engine: &Engine, sandbox: &SandboxId, config: ContainerConfig) -> ContainerId {
        let id = engine.create_container(sandbox, config).await.expect("create");
        engine.start_container(&id).await.expect("start");
        id
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.logs().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Removes all pods, shuts down the engine and its monitor, and asserts that nothing of them is left.
    pub async fn assert_nothing_left(&self, engine: Engine) {
        for sandbox in engine.sandboxes() {
            engine.remove_sandbox(&sandbox.id).await.expect("remove");
        }
        assert!(engine.sandboxes().is_empty() && engine.containers().is_empty());
        assert_eq!(engine.images().snapshots(), Vec::<String>::new());
        let state = &self.config.state_dir;
        for part in ["sandbox", "container", "broken", "netns"] {
            let records: Vec<_> =
                fs::read_dir(state.join(part)).expect(part).flatten().map(|e| e.file_name()).collect();
            assert!(records.is_empty(), "{part}: {records:?}");
        }
        let pins: Vec<_> = fs::read_dir("/run/netns").expect("netns").flatten().map(|e| e.file_name()).collect();
        assert!(pins.is_empty(), "pins: {pins:?}");
        let new_mounts: Vec<_> = mounts().into_iter().filter(|mount| !self.mounts.contains(mount)).collect();
        // The state directory is on the node's /run, which is a tmpfs already, so the engine mounts none.
        assert!(new_mounts.is_empty(), "mounts: {new_mounts:?}");
        wait_until("the links of pods are gone", TIMEOUT, || !shell("ip -o link").contains("veth"));
        let group = Path::new("/sys/fs/cgroup/unified").join(&self.config.default_cgroup_parent[1..]);
        let children = fs::read_dir(group).into_iter().flatten().flatten();
        let groups: Vec<_> = children.filter(|entry| entry.path().is_dir()).map(|entry| entry.path()).collect();
        assert!(groups.is_empty(), "cgroups: {groups:?}");
        remove_group(&self.config.default_cgroup_parent);
    }
}

/// A container of the demonstration image.
pub fn container(name: &str, command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        name: name.into(),
        attempt: 0,
        image: IMAGE.into(),
        user_specified_image: IMAGE.into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        args: vec![],
        working_dir: None,
        env: vec![],
        volumes: vec![],
        devices: vec![],
        cdi_devices: vec![],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        log_path: Some(format!("{name}.log").into()),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: pod::oci::Resources::default(),
        oom_score_adj: 0,
        security: Security {
            user: UserChoice::Image,
            supplemental_groups: vec![],
            groups_policy: GroupsPolicy::Merge,
            privileged: false,
            readonly_rootfs: false,
            no_new_privileges: false,
            add_capabilities: vec![],
            drop_capabilities: vec![],
            add_ambient_capabilities: vec![],
            seccomp: SeccompChoice::RuntimeDefault,
            apparmor: None,
            selinux_label: None,
            masked_paths: None,
            readonly_paths: None,
            pid: PidMode::Container,
            target: None,
            network: None,
            ipc: None,
            user_namespace: None,
        },
        stop_signal: None,
        vm_process: None,
    }
}

/// A container that runs a shell script.
pub fn script(name: &str, text: &str) -> ContainerConfig {
    container(name, &["sh", "-c", text])
}

pub fn state(engine: &Engine, id: &ContainerId) -> ContainerState {
    engine.container(id).expect("container").state
}

/// Runs a shell command in a container, which must succeed, and returns its output.
pub async fn exec(engine: &Engine, id: &ContainerId, text: &str) -> String {
    let command = ["sh", "-c", text].map(str::to_owned).to_vec();
    let output = engine.exec_sync(id, command, TIMEOUT).await.expect("exec");
    assert_eq!(output.exit_code, 0, "{text}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until a container exits and returns its exit code.
pub async fn exit_code(engine: &Engine, id: &ContainerId) -> Option<i32> {
    tokio::time::timeout(TIMEOUT, engine.wait(id)).await.expect("it exits in time").expect("the container exists")
}

/// Kills the monitor with SIGKILL.
pub async fn kill_monitor(engine: &Engine) {
    let info = engine.status().await.info;
    let pid = info.monitor.expect("the monitor").pid as i32;
    let pid = rustix::process::Pid::from_raw(pid).expect("pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
}

pub async fn monitor_pid(engine: &Engine) -> Option<u32> {
    engine.status().await.info.monitor.map(|monitor| monitor.pid)
}

/// Waits until the monitor has another PID than before.
pub async fn wait_for_new_monitor(engine: &Engine, before: Option<u32>) {
    let begin = std::time::Instant::now();
    while matches!(monitor_pid(engine).await, pid if pid.is_none() || pid == before) {
        assert!(begin.elapsed() < TIMEOUT, "no new monitor was started");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
