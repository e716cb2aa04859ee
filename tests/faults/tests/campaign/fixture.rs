//! A node with a bystander: a pod that no point may affect.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use system_tests::{ContainerSpec, Node, Options, PodSpec, Process, Registry};
use testbed::make_image_with;
use tonic::transport::Channel;

use crate::{leftovers, strace::Tracer};

/// A bound for failing runs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the cleanup may continue after the response to a removal.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const IMAGE: &str = "docker.io/library/demo:1";
pub(crate) const PULLED: &str = "127.0.0.1:5000/small:1";
/// Script of the bystander, which prints numbered lines forever.
const BYSTANDER: &str = "echo content > /tmp/file; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";

/// The node, the bystander, and the results of the current point.
pub(crate) struct Fixture {
    pub(crate) node: Node,
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) bystander: Bystander,
    /// Inventory of the node with only the bystander.
    pub(crate) baseline: BTreeSet<String>,
    /// The strace that injects the fault of the current point.
    pub(crate) tracer: Option<Tracer>,
    /// The trace, after the tracer was detached.
    pub(crate) trace: String,
    /// Faults found at the current point.
    pub(crate) faults: Vec<String>,
    /// Number of restarts of the daemon.
    pub(crate) restarts: u64,
    layers: BTreeMap<PathBuf, u64>,
    registry: Registry,
}

/// The pod that no point may affect.
pub(crate) struct Bystander {
    pub(crate) pod: String,
    pub(crate) container: String,
    log: PathBuf,
    /// Number of bytes of the log that were checked, and the number of the last line.
    checked: (u64, u64),
    init: Process,
}

impl Fixture {
    /// Starts a node with a daemon, a registry and the bystander.
    pub(crate) async fn new() -> Self {
        let node = Node::with(Options { config: "network.pool = 1\n".into(), ..Options::default() });
        node.load_image();
        let mut registry = Registry::start(&node);
        push_small_image(&node, &mut registry);
        let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
        let channel = cri_proto::connect(&socket).await.expect("connect to the daemon");
        let spec = PodSpec::named(&node, "bystander");
        let pod = node.run_pod(&spec);
        let container =
            node.run_container(&pod, &spec, &ContainerSpec::new("main", "demo:1", &["sh", "-c", BYSTANDER]));
        let log = node.logs().join("bystander/main.log");
        let init = node.processes().into_iter().find(|process| process.command_line().contains("echo line"));
        let init = init.expect("the process of the bystander");
        let mut fixture = Self {
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            bystander: Bystander { pod, container, log, checked: (0, 0), init },
            baseline: BTreeSet::new(),
            tracer: None,
            trace: String::new(),
            faults: Vec::new(),
            restarts: 0,
            node,
            layers: BTreeMap::new(),
            registry,
        };
        fixture.node.pinion(&["pull", PULLED]).ok();
        fixture.layers = layers(&fixture.node);
        fixture.node.pinion(&["rmi", PULLED]).ok();
        fixture.baseline = leftovers::inventory(&fixture.node);
        fixture
    }

    pub(crate) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Detaches the tracer and stores its trace.
    pub(crate) fn detach(&mut self) {
        if let Some(tracer) = self.tracer.take() {
            self.trace = tracer.detach();
        }
    }

    /// Detaches the tracer if the fault was injected. Each thread and process counts its own calls, so otherwise a
    /// repeated request would hit the fault repeatedly.
    pub(crate) fn detach_if_injected(&mut self) {
        if self.tracer.as_ref().is_some_and(Tracer::injected) {
            self.detach();
        }
    }

    /// Restarts the daemon if it has exited, and returns whether it had.
    pub(crate) fn restart_daemon_if_exited(&mut self) -> bool {
        if self.node.daemon_status().is_none() {
            return false;
        }
        self.node.reap_daemon();
        self.restarts += 1;
        self.node.spawn_daemon(&[]);
        self.wait_for_daemon();
        true
    }

    /// Waits until the daemon is ready or has exited.
    pub(crate) fn wait_for_daemon(&mut self) {
        let start = Instant::now();
        while self.node.pinion(&["version"]).code != Some(0) {
            if let Some(status) = self.node.daemon_status() {
                return self.fault(format!("the daemon failed to start: {status}"));
            }
            if start.elapsed() > TIMEOUT {
                return self.fault("the daemon does not respond");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a daemon that may be killed or fail during its start is ready or has exited.
    pub(crate) async fn wait_for_traced_daemon(&mut self) {
        let start = Instant::now();
        while self.node.daemon_status().is_none() && self.node.pinion(&["version"]).code != Some(0) {
            if start.elapsed() > TIMEOUT {
                return self.fault("the daemon neither responds nor exits");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Checks that every existing layer has the content that was pulled.
    pub(crate) fn check_layers(&mut self) {
        for (layer, content) in layers(&self.node) {
            if self.layers.get(&layer) != Some(&content) {
                self.fault(format!("layer {} differs from the pulled one", layer.display()));
            }
        }
    }

    /// Checks that the node is in the same state as before the point: nothing leaked, nothing lost, and the bystander
    /// not affected.
    pub(crate) async fn check(&mut self) {
        if let Err(fault) = self.bystander.check().await {
            self.fault(fault);
        }
        let start = Instant::now();
        let (mut leaked, mut lost) = (Vec::new(), Vec::new());
        while start.elapsed() < CLEANUP_TIMEOUT {
            let now = leftovers::inventory(&self.node);
            leaked = now.difference(&self.baseline).cloned().collect();
            lost = self.baseline.difference(&now).cloned().collect();
            if leaked.is_empty() && lost.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !leaked.is_empty() {
            self.fault(format!("leaked: {leaked:?}"));
        }
        if !lost.is_empty() {
            self.fault(format!("lost: {lost:?}"));
        }
        self.check_layers();
        self.check_lists().await;
    }

    /// Checks that only the bystander is listed and running, and that `Status` reports ready.
    async fn check_lists(&mut self) {
        let pods = self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await;
        let containers = self.runtime.list_containers(v1::ListContainersRequest::default()).await;
        let images = self.images.list_images(v1::ListImagesRequest::default()).await;
        let status = self.runtime.status(v1::StatusRequest::default()).await;
        match (pods, containers, images, status) {
            (Ok(pods), Ok(containers), Ok(images), Ok(status)) => {
                let pods: Vec<_> = pods.into_inner().items.into_iter().map(|pod| (pod.id, pod.state)).collect();
                if pods != [(self.bystander.pod.clone(), v1::PodSandboxState::SandboxReady as i32)] {
                    self.fault(format!("listed pods: {pods:?}"));
                }
                let containers: Vec<_> = containers
                    .into_inner()
                    .containers
                    .into_iter()
                    .map(|container| (container.id, container.state))
                    .collect();
                if containers != [(self.bystander.container.clone(), v1::ContainerState::ContainerRunning as i32)] {
                    self.fault(format!("listed containers: {containers:?}"));
                }
                let images: Vec<_> = images.into_inner().images.into_iter().flat_map(|image| image.repo_tags).collect();
                if images != [IMAGE] {
                    self.fault(format!("listed images: {images:?}"));
                }
                let conditions = status.into_inner().status.map(|status| status.conditions).unwrap_or_default();
                if conditions.len() != 2 || conditions.iter().any(|condition| !condition.status) {
                    self.fault(format!("status: {conditions:?}"));
                }
            }
            responses => self.fault(format!("list requests: {responses:?}")),
        }
    }

    /// Removes the fixture. Anything leaked on the machine is a fault.
    pub(crate) fn end(mut self) {
        self.node.remove_all_pods();
        self.registry.stop(&self.node);
        self.node.end();
    }
}

impl Bystander {
    /// Checks that the process is the same one, that its file has the same content, and that its log continues without
    /// a gap.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        let content = fs::read_to_string(self.init.path("/tmp/file")).map_err(|error| format!("bystander: {error}"))?;
        if content != "content\n" || !self.init.path("/bin/busybox").exists() {
            return Err(format!("bystander: wrong files: {content:?}"));
        }
        let start = Instant::now();
        let added = loop {
            let text = fs::read(&self.log).map_err(|error| format!("bystander: read log: {error}"))?;
            let added = String::from_utf8_lossy(text.get(self.checked.0 as usize..).unwrap_or_default()).into_owned();
            if added.contains('\n') {
                break added;
            }
            if start.elapsed() > CLEANUP_TIMEOUT {
                return Err("bystander: no new line in the log".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let (complete, _) = added.rsplit_once('\n').unwrap_or_default();
        for line in complete.lines() {
            let expected = format!("line {}", self.checked.1 + 1);
            if line.splitn(4, ' ').nth(3) != Some(expected.as_str()) {
                return Err(format!("bystander: log contains {line:?} instead of {expected:?}"));
            }
            self.checked.0 += line.len() as u64 + 1;
            self.checked.1 += 1;
        }
        Ok(())
    }
}

/// Returns the name of every unpacked layer and a hash of its content.
fn layers(node: &Node) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(node.dir.path().join("data/layers")).into_iter().flatten().flatten();
    let content = |layer: &Path| {
        let mut files = BTreeMap::new();
        leftovers::walk(layer, 32, &mut |path, is_directory| {
            let mode = fs::symlink_metadata(path).map(|meta| meta.permissions().mode()).ok();
            let link = fs::read_link(path).ok();
            let bytes = if is_directory || link.is_some() { Vec::new() } else { fs::read(path).unwrap_or_default() };
            files.insert(path.to_owned(), (mode, link, bytes));
        });
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        hasher.finish()
    };
    entries.map(|entry| (PathBuf::from(entry.file_name()), content(&entry.path()))).collect()
}

/// Pushes an image with a few small files, so that it can be pulled quickly for each point.
fn push_small_image(node: &Node, registry: &mut Registry) {
    let dir = node.dir.path().join("small");
    fs::create_dir(&dir).expect("create a directory");
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" != --list ] || printf 'sh\\ncat\\nls\\n'\n").expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    make_image_with(&dir, PULLED, &[("BUSYBOX", program.to_str().expect("UTF-8")), ("LAYERS", "1")]);
    registry.layout = dir.join("layout");
    registry.push(node, "small", "1");
}
