//! A node with a bystander: a pod that no point is about, and that nothing may happen to.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use system_tests::{ContainerSpec, Node, Options, PodSpec, Process, Registry};
use tonic::transport::Channel;

use crate::{leftovers, strace::Tracer};

/// A bound for a broken run, not a measure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What a removal may do after its answer.
const SETTLE: Duration = Duration::from_secs(20);
pub(crate) const IMAGE: &str = "docker.io/library/demo:1";
pub(crate) const PULLED: &str = "127.0.0.1:5000/small:1";
/// Numbered lines without end, in the bystander.
const BYSTANDER: &str = "echo content > /tmp/kept; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";

/// See the head of this file.
pub(crate) struct Stage {
    pub(crate) node: Node,
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) bystander: Bystander,
    /// Everything on the node while only the bystander is there.
    pub(crate) baseline: BTreeSet<String>,
    /// The strace that injects the fault of the present point.
    pub(crate) tracer: Option<Tracer>,
    /// What it traced, once it is detached.
    pub(crate) trace: String,
    /// What should not have happened at the present point.
    pub(crate) faults: Vec<String>,
    /// How often the daemon was started again.
    pub(crate) restarts: u64,
    layers: BTreeMap<PathBuf, u64>,
    registry: Registry,
}

/// The pod that every point leaves alone.
pub(crate) struct Bystander {
    pub(crate) pod: String,
    pub(crate) container: String,
    log: PathBuf,
    /// Bytes of the log that were checked, and the last line's number.
    checked: (u64, u64),
    init: Process,
}

impl Stage {
    /// A node with a daemon, a registry and the bystander.
    pub(crate) async fn new() -> Self {
        let node = Node::with(Options { config: "network.pool = 1\n".into(), ..Options::default() });
        node.load_image();
        let mut registry = Registry::start(&node);
        push_small_image(&node, &mut registry);
        let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.first());
        let channel = cri_proto::connect(&socket).await.expect("the daemon answers");
        let spec = PodSpec::named(&node, "bystander");
        let pod = node.run_pod(&spec);
        let container =
            node.run_container(&pod, &spec, &ContainerSpec::new("main", "demo:1", &["sh", "-c", BYSTANDER]));
        let log = node.logs().join("bystander/main.log");
        let init = node.processes().into_iter().find(|process| process.command_line().contains("echo line"));
        let init = init.expect("the bystander's process");
        let mut stage = Self {
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
        stage.node.pinion(&["pull", PULLED]).ok();
        stage.layers = layers(&stage.node);
        stage.node.pinion(&["rmi", PULLED]).ok();
        stage.baseline = leftovers::inventory(&stage.node);
        stage
    }

    pub(crate) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Ends the tracer.
    pub(crate) fn detach(&mut self) {
        if let Some(tracer) = self.tracer.take() {
            self.trace = tracer.detach();
        }
    }

    /// Ends the tracer if the fault was injected: each thread and process counts its own calls, so that a request that
    /// is repeated would meet the fault again and again.
    pub(crate) fn detach_if_injected(&mut self) {
        if self.tracer.as_ref().is_some_and(Tracer::injected) {
            self.detach();
        }
    }

    /// Starts the daemon again if it ended. Whether it had.
    pub(crate) fn revive(&mut self) -> bool {
        if self.node.daemon_ended().is_none() {
            return false;
        }
        self.node.forget_daemon();
        self.restarts += 1;
        self.node.spawn_daemon(&[]);
        self.wait_for_daemon();
        true
    }

    /// Waits until the daemon answers, or has ended.
    pub(crate) fn wait_for_daemon(&mut self) {
        let begin = Instant::now();
        while self.node.pinion(&["version"]).code != Some(0) {
            if let Some(status) = self.node.daemon_ended() {
                return self.fault(format!("the daemon does not start: {status}"));
            }
            if begin.elapsed() > PATIENCE {
                return self.fault("the daemon does not answer");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a daemon that may be killed or fail at its start answers, or has ended.
    pub(crate) async fn wait_for_traced_daemon(&mut self) {
        let begin = Instant::now();
        while self.node.daemon_ended().is_none() && self.node.pinion(&["version"]).code != Some(0) {
            if begin.elapsed() > PATIENCE {
                return self.fault("the daemon neither answers nor ends");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Every layer that is there is what was pulled.
    pub(crate) fn check_layers(&mut self) {
        for (layer, content) in layers(&self.node) {
            if self.layers.get(&layer) != Some(&content) {
                self.fault(format!("layer {} is not what was pulled", layer.display()));
            }
        }
    }

    /// Checks that the node is as it was before the point: nothing more, nothing less; the bystander is untouched.
    pub(crate) async fn check(&mut self) {
        if let Err(fault) = self.bystander.check().await {
            self.fault(fault);
        }
        let begin = Instant::now();
        let (mut more, mut less) = (Vec::new(), Vec::new());
        while begin.elapsed() < SETTLE {
            let now = leftovers::inventory(&self.node);
            more = now.difference(&self.baseline).cloned().collect();
            less = self.baseline.difference(&now).cloned().collect();
            if more.is_empty() && less.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !more.is_empty() {
            self.fault(format!("left: {more:?}"));
        }
        if !less.is_empty() {
            self.fault(format!("lost: {less:?}"));
        }
        self.check_layers();
        self.check_lists().await;
    }

    /// Only the bystander is listed, it runs, and `Status` says ready.
    async fn check_lists(&mut self) {
        let pods = self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await;
        let containers = self.runtime.list_containers(v1::ListContainersRequest::default()).await;
        let images = self.images.list_images(v1::ListImagesRequest::default()).await;
        let status = self.runtime.status(v1::StatusRequest::default()).await;
        match (pods, containers, images, status) {
            (Ok(pods), Ok(containers), Ok(images), Ok(status)) => {
                let pods: Vec<_> = pods.into_inner().items.into_iter().map(|pod| (pod.id, pod.state)).collect();
                if pods != [(self.bystander.pod.clone(), v1::PodSandboxState::SandboxReady as i32)] {
                    self.fault(format!("pods are listed: {pods:?}"));
                }
                let containers: Vec<_> =
                    containers.into_inner().containers.into_iter().map(|one| (one.id, one.state)).collect();
                if containers != [(self.bystander.container.clone(), v1::ContainerState::ContainerRunning as i32)] {
                    self.fault(format!("containers are listed: {containers:?}"));
                }
                let images: Vec<_> = images.into_inner().images.into_iter().flat_map(|image| image.repo_tags).collect();
                if images != [IMAGE] {
                    self.fault(format!("images are listed: {images:?}"));
                }
                let conditions = status.into_inner().status.map(|status| status.conditions).unwrap_or_default();
                if conditions.len() != 2 || conditions.iter().any(|condition| !condition.status) {
                    self.fault(format!("status: {conditions:?}"));
                }
            }
            others => self.fault(format!("lists: {others:?}")),
        }
    }

    /// Ends the stage; what is left on the machine is a fault.
    pub(crate) fn end(mut self) {
        self.node.remove_all_pods();
        self.registry.stop(&self.node);
        self.node.end();
    }
}

impl Bystander {
    /// Its process is the same one, its file has its content, and its log goes on without a gap.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        let kept = fs::read_to_string(self.init.path("/tmp/kept")).map_err(|error| format!("bystander: {error}"))?;
        if kept != "content\n" || !self.init.path("/bin/busybox").exists() {
            return Err(format!("the bystander's files: {kept:?}"));
        }
        let begin = Instant::now();
        let fresh = loop {
            let text = fs::read(&self.log).map_err(|error| format!("the bystander's log: {error}"))?;
            let fresh = String::from_utf8_lossy(text.get(self.checked.0 as usize..).unwrap_or_default()).into_owned();
            if fresh.contains('\n') {
                break fresh;
            }
            if begin.elapsed() > SETTLE {
                return Err("the bystander's log does not go on".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let (whole, _) = fresh.rsplit_once('\n').unwrap_or_default();
        for line in whole.lines() {
            let expected = format!("line {}", self.checked.1 + 1);
            if line.splitn(4, ' ').nth(3) != Some(expected.as_str()) {
                return Err(format!("the bystander's log: {line:?} instead of {expected:?}"));
            }
            self.checked.0 += line.len() as u64 + 1;
            self.checked.1 += 1;
        }
        Ok(())
    }
}

/// Name and content of every unpacked layer.
fn layers(node: &Node) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(node.dir.path().join("data/layers")).into_iter().flatten().flatten();
    let content = |layer: &Path| {
        let mut files = BTreeMap::new();
        leftovers::walk(layer, 32, &mut |path, is_directory| {
            let mode = fs::symlink_metadata(path).map(|about| about.permissions().mode()).ok();
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

/// An image of a few small files: what is quick to pull is quick to pull two thousand times.
fn push_small_image(node: &Node, registry: &mut Registry) {
    let dir = node.dir.path().join("small");
    fs::create_dir(&dir).expect("a directory");
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" != --list ] || printf 'sh\\ncat\\nls\\n'\n").expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make-image");
    let mut command = Command::new(script);
    let made = command.arg(&dir).arg(PULLED).env("BUSYBOX", &program).env("LAYERS", "1").output().expect("make-image");
    assert!(made.status.success(), "{made:?}");
    registry.layout = dir.join("layout");
    registry.push(node, "small", "1");
}
