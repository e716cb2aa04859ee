//! Checkpoints and restores of pods in virtual machines, with a QEMU and a virtiofsd that can save a pod
//! (`tests/external/vm-checkpoint`). PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use cri_proto::v1::{
    CheckpointPodRequest, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatusRequest,
    CreateContainerRequest, ImageSpec, LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    RestorePodRequest, RestorePodResponse, RunPodSandboxRequest, StartContainerRequest, StopContainerRequest,
    runtime_service_client::RuntimeServiceClient,
};
use system_tests::{Node, Process, node_with_guests, wait_until};
use tonic::{Code, Request, Status, transport::Channel};

const IMAGE: &str = "docker.io/library/demo:1";
/// Programs of a virtual machine.
const PROGRAMS: [&str; 2] = ["qemu-system-x86", "virtiofsd"];
/// Time limit of a request.
const DEADLINE: Duration = Duration::from_secs(240);
/// Prints and writes numbers. `data` is open all the time.
const COUNT: &str = "exec 5>>/data; i=0; while :; do i=$((i+1)); echo $i; echo $i >&5; sleep 0.05; done";

/// Makes a request to the daemon of a node.
fn call<T, W: Future<Output = Result<T, Status>>>(
    node: &Node,
    work: impl FnOnce(RuntimeServiceClient<Channel>) -> W,
) -> Result<T, Status> {
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let channel = cri_proto::connect(&socket).await.expect("connect to the daemon");
        work(RuntimeServiceClient::new(channel)).await
    })
}

fn namespaces() -> Option<NamespaceOption> {
    Some(NamespaceOption { pid: NamespaceMode::Container.into(), ..NamespaceOption::default() })
}

fn pod_config(node: &Node, name: &str) -> PodSandboxConfig {
    let metadata = PodSandboxMetadata {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    let security = LinuxSandboxSecurityContext { namespace_options: namespaces(), ..Default::default() };
    PodSandboxConfig {
        metadata: Some(metadata),
        hostname: name.to_owned(),
        log_directory: node.logs().join(name).to_string_lossy().into_owned(),
        linux: Some(LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() }),
        ..Default::default()
    }
}

fn container_config(name: &str, command: &str) -> ContainerConfig {
    let security = LinuxContainerSecurityContext { namespace_options: namespaces(), ..Default::default() };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
        command: ["sh", "-c", command].map(str::to_owned).to_vec(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
        ..Default::default()
    }
}

/// A pod, and its containers with their ids.
struct Pod {
    id: String,
    config: PodSandboxConfig,
    containers: Vec<(String, ContainerConfig)>,
}

impl Pod {
    /// Runs a pod with containers that execute these commands.
    fn run(node: &Node, name: &str, commands: &[(&str, &str)]) -> Self {
        let config = pod_config(node, name);
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: "vm".to_owned() };
        let id = call(node, async |mut client| client.run_pod_sandbox(request).await).expect("run");
        let mut pod = Self { id: id.into_inner().pod_sandbox_id, config, containers: Vec::new() };
        for (name, command) in commands {
            let container = container_config(name, command);
            let request = CreateContainerRequest {
                pod_sandbox_id: pod.id.clone(),
                config: Some(container.clone()),
                sandbox_config: Some(pod.config.clone()),
            };
            let id = call(node, async |mut client| client.create_container(request).await).expect("create");
            pod.containers.push((id.into_inner().container_id, container));
            pod.start(node, pod.containers.len() - 1);
        }
        pod
    }

    fn start(&self, node: &Node, index: usize) {
        let request = StartContainerRequest { container_id: self.containers[index].0.clone() };
        call(node, async |mut client| client.start_container(request).await).expect("start");
    }

    fn checkpoint_request(&self, output: &Path) -> CheckpointPodRequest {
        CheckpointPodRequest {
            pod_sandbox_id: self.id.clone(),
            output_path: output.to_string_lossy().into_owned(),
            container_ids: self.containers.iter().map(|(id, _)| id.clone()).collect(),
            ..CheckpointPodRequest::default()
        }
    }

    fn checkpoint(&self, node: &Node, output: &Path) {
        checkpoint(node, self.checkpoint_request(output), DEADLINE).expect("checkpoint");
    }

    fn restore_request(&self, node: &Node, checkpoint: &Path) -> RestorePodRequest {
        let name = &self.config.metadata.as_ref().expect("metadata").name;
        RestorePodRequest {
            checkpoint_path: checkpoint.to_string_lossy().into_owned(),
            config: Some(pod_config(node, name)),
            runtime_handler: "vm".to_owned(),
            container_configs: self.containers.iter().map(|(_, config)| config.clone()).collect(),
            ..RestorePodRequest::default()
        }
    }

    /// Restores the pod, on this or another node.
    fn restore(&self, node: &Node, checkpoint: &Path) -> Self {
        let request = self.restore_request(node, checkpoint);
        let restored = restore(node, request.clone(), DEADLINE).expect("restore");
        let find = |(_, config): &(String, ContainerConfig)| {
            let name = &config.metadata.as_ref().expect("metadata").name;
            let mut all = restored.restored_containers.iter();
            let restored = all.find(|restored| restored.name == *name).expect("the container");
            (restored.container_id.clone(), config.clone())
        };
        Self {
            containers: self.containers.iter().map(find).collect(),
            config: request.config.expect("a configuration"),
            id: restored.pod_sandbox_id,
        }
    }

    fn state(&self, node: &Node, index: usize) -> (ContainerState, i32) {
        let request = ContainerStatusRequest { container_id: self.containers[index].0.clone(), ..Default::default() };
        let response = call(node, async |mut client| client.container_status(request).await).expect("status");
        let status = response.into_inner().status.expect("status");
        (status.state(), status.exit_code)
    }

    fn exec(&self, node: &Node, index: usize, command: &str) -> system_tests::Outcome {
        node.pinion(&["exec", &self.containers[index].0, "sh", "-c", command])
    }

    /// Returns what a container has printed.
    fn log(&self, index: usize) -> Vec<String> {
        let path = PathBuf::from(&self.config.log_directory).join(&self.containers[index].1.log_path);
        let text = fs::read_to_string(path).unwrap_or_default();
        // time stream tag text
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3).map(str::to_owned)).collect()
    }

    /// Returns the numbers that a container has printed, which must be contiguous.
    #[track_caller]
    fn numbers(&self, index: usize) -> (u64, u64) {
        let log = self.log(index);
        let numbers: Vec<u64> = log.iter().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(numbers.len(), log.len(), "{log:?}");
        contiguous(&numbers)
    }

    #[track_caller]
    fn wait_for(&self, node: &Node, index: usize, number: u64) {
        wait_long(node, &format!("number {number}"), || self.numbers(index).1 >= number);
    }
}

/// Returns the first and the last number; zeros if there are none.
#[track_caller]
fn contiguous(numbers: &[u64]) -> (u64, u64) {
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return (0, 0) };
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a line is lost or repeated: {numbers:?}");
    (*first, *last)
}

fn checkpoint(node: &Node, request: CheckpointPodRequest, deadline: Duration) -> Result<(), Status> {
    let mut request = Request::new(request);
    request.set_timeout(deadline);
    call(node, async |mut client| client.checkpoint_pod(request).await).map(drop)
}

fn restore(node: &Node, request: RestorePodRequest, deadline: Duration) -> Result<RestorePodResponse, Status> {
    let mut request = Request::new(request);
    request.set_timeout(deadline);
    call(node, async |mut client| client.restore_pod(request).await).map(tonic::Response::into_inner)
}

#[track_caller]
fn wait_long(node: &Node, what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "{what}:\n{}", node.daemon_log());
        sleep(Duration::from_millis(100));
    }
}

fn guests(node: &Node) -> Vec<Process> {
    let is_guests = |process: &Process| PROGRAMS.iter().any(|program| process.command_line().contains(program));
    node.processes().into_iter().filter(|process| process.state != 'Z' && is_guests(process)).collect()
}

fn directory(node: &Node, name: &str) -> PathBuf {
    let path = node.dir.path().join(name);
    fs::create_dir(&path).expect("a directory");
    path
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[track_caller]
fn assert_nothing_restored(node: &Node, what: &str) {
    wait_until(&format!("{what}: no process is left"), || guests(node).is_empty());
    assert_eq!(node.crictl(&["pods", "-q"]).ok(), "", "{what}");
    assert_eq!(node.crictl(&["ps", "-a", "-q"]).ok(), "", "{what}");
    assert_eq!(files(&node.dir.path().join("data/snapshots")), Vec::<String>::new(), "{what}: writable layers");
}

#[test]
fn a_pod_continues_where_it_was_saved() {
    let mut node = node_with_guests("");
    let files_of_root =
        "mkdir /new && ln -s data /link && rm /etc/hostname; rm -rf /bin/vi; echo hidden > /new/file; sleep 1000";
    let pod = Pod::run(&node, "counter", &[("count", COUNT), ("idle", files_of_root)]);
    let done = Pod::run(&node, "other", &[("other", "sleep 1000")]);
    pod.wait_for(&node, 0, 20);
    let saved = directory(&node, "saved");
    let before = pod.numbers(0).1;
    let begin = Instant::now();
    pod.checkpoint(&node, &saved);
    eprintln!("checkpoint: {} ms", begin.elapsed().as_millis());
    let after = pod.numbers(0).1;
    assert_eq!(files(&saved), ["checkpoint.json", "layer-0.tar", "layer-1.tar", "state"]);
    for name in files(&saved) {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(saved.join(&name)).expect("a file").permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    pod.wait_for(&node, 0, after + 20);
    assert_eq!(pod.exec(&node, 0, "echo alive").ok(), "alive", "the pod that was saved continues");
    node.kill_daemon();
    node.start_daemon();
    pod.wait_for(&node, 0, after + 40);
    let second = directory(&node, "second");
    pod.checkpoint(&node, &second);
    node.remove_all_pods();
    drop(done);

    let begin = Instant::now();
    let restored = pod.restore(&node, &saved);
    eprintln!("restore: {} ms", begin.elapsed().as_millis());
    fs::remove_dir_all(&second).expect("removed");
    let length = restored.log(0).len();
    assert_ne!(restored.id, pod.id);
    assert_eq!(restored.state(&node, 0).0, ContainerState::ContainerCreated);
    node.kill_daemon();
    node.start_daemon();
    sleep(Duration::from_secs(2));
    assert_eq!(restored.state(&node, 0).0, ContainerState::ContainerCreated);
    assert_eq!(restored.log(0).len(), length, "it has not run");
    restored.start(&node, 0);
    restored.start(&node, 1);
    wait_long(&node, "it prints", || restored.log(0).len() > length);
    assert_eq!(restored.state(&node, 0).0, ContainerState::ContainerRunning);
    // The log of the pod that was saved is continued: the file is the same.
    let log = restored.log(0);
    let numbers: Vec<u64> = log[length..].iter().map(|line| line.parse().expect("a number")).collect();
    let (first, last) = contiguous(&numbers);
    assert!(before < first && first <= after + 1, "{before} < {first} <= {after} + 1");
    let data: Vec<u64> =
        restored.exec(&node, 0, "cat /data").ok().lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(contiguous(&data).0, 1, "its root has what was written before, and goes with its memory");
    assert!(contiguous(&data).1 >= last);
    let listing = restored.exec(&node, 1, "readlink /link; cat /new/file; ls /etc/hostname 2>&1 | tail -n 1").ok();
    assert!(listing.starts_with("data\nhidden"), "{listing}");
    node.kill_daemon();
    node.start_daemon();
    wait_long(&node, "it continues without a daemon", || restored.log(0).len() > log.len() + 20);
    assert_eq!(restored.exec(&node, 0, "echo alive; exit 3").code, Some(3));
    let request = StopContainerRequest { container_id: restored.containers[0].0.clone(), timeout: 0 };
    call(&node, async |mut client| client.stop_container(request).await).expect("stop");
    assert_eq!(restored.state(&node, 0), (ContainerState::ContainerExited, 137));
    node.remove_all_pods();

    let other = node_with_guests("");
    let elsewhere = pod.restore(&other, &saved);
    assert_eq!(elsewhere.log(0).len(), 0, "nothing is printed before the start");
    elsewhere.start(&other, 0);
    wait_long(&other, "it prints", || elsewhere.log(0).len() > 20);
    assert_eq!(elsewhere.numbers(0).0, first, "both continue at the same number");
    other.remove_all_pods();
    assert_nothing_restored(&other, "after the removal");
    other.end();
    node.end();
}

/// Whether a request has failed because of its deadline. The client ends it, too.
fn is_late(status: &Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

/// Copies a checkpoint, for a test that damages it.
fn copy(node: &Node, checkpoint: &Path, name: &str) -> PathBuf {
    let copy = directory(node, name);
    for name in files(checkpoint) {
        fs::copy(checkpoint.join(&name), copy.join(&name)).expect("copied");
    }
    copy
}

#[test]
fn what_cannot_be_saved_or_restored_is_refused_and_leaves_nothing() {
    let node = node_with_guests("");
    let pod = Pod::run(&node, "counter", &[("count", COUNT), ("other", "exec 5>/gone; rm /gone; sleep 1000")]);
    pod.wait_for(&node, 0, 10);
    let saved = directory(&node, "saved");
    let refused = |request: CheckpointPodRequest, code: Code, reason: &str| {
        let status = checkpoint(&node, request, DEADLINE).expect_err(reason);
        assert!(status.code() == code && status.message().contains(reason), "{reason}: {status}");
    };
    let request = pod.checkpoint_request(&saved);
    refused(request.clone(), Code::FailedPrecondition, "a file open that was deleted");
    assert_eq!(files(&saved), Vec::<String>::new(), "partial files are removed");
    let last = pod.numbers(0).1;
    pod.wait_for(&node, 0, last + 10);
    refused(
        CheckpointPodRequest { container_ids: vec![request.container_ids[0].clone()], ..request.clone() },
        Code::InvalidArgument,
        "is running and not listed",
    );
    let options = [("key".to_owned(), "value".to_owned())].into();
    refused(CheckpointPodRequest { options, ..request.clone() }, Code::InvalidArgument, "options");
    let missing = saved.join("missing").to_string_lossy().into_owned();
    refused(CheckpointPodRequest { output_path: missing, ..request.clone() }, Code::InvalidArgument, "output_path");
    node.pinion(&["rm", "-f", &pod.containers[1].0]).ok();
    let pod = Pod { containers: pod.containers[..1].to_vec(), ..pod };
    fs::write(saved.join("file"), "").expect("a file");
    refused(pod.checkpoint_request(&saved), Code::InvalidArgument, "not empty");
    fs::remove_file(saved.join("file")).expect("removed");
    let late = checkpoint(&node, pod.checkpoint_request(&saved), Duration::from_millis(100)).expect_err("late");
    assert!(is_late(&late), "{late}");
    wait_long(&node, "partial files are removed", || files(&saved).is_empty());
    let last = pod.numbers(0).1;
    pod.wait_for(&node, 0, last + 10);
    pod.checkpoint(&node, &saved);
    node.remove_all_pods();

    let refused = |request: RestorePodRequest, code: Code, reason: &str| {
        let status = restore(&node, request, DEADLINE).expect_err(reason);
        assert!(status.code() == code && status.message().contains(reason), "{reason}: {status}");
        assert_nothing_restored(&node, reason);
    };
    let request = pod.restore_request(&node, &saved);
    let native = RestorePodRequest { runtime_handler: String::new(), ..request.clone() };
    refused(native, Code::Unimplemented, "cannot restore pods");
    let mut other = request.clone();
    other.container_configs[0].command.push("more".to_owned());
    refused(other, Code::InvalidArgument, "command: differs");
    let mut other = request.clone();
    other.container_configs[0].metadata.as_mut().expect("metadata").name = "other".to_owned();
    refused(other, Code::InvalidArgument, "container_configs");
    let incomplete = copy(&node, &saved, "incomplete");
    fs::remove_file(incomplete.join("layer-0.tar")).expect("removed");
    refused(pod.restore_request(&node, &incomplete), Code::InvalidArgument, "incomplete: layer-0.tar");
    fs::remove_file(incomplete.join("checkpoint.json")).expect("removed");
    refused(pod.restore_request(&node, &incomplete), Code::InvalidArgument, "incomplete: checkpoint.json");
    let cut = copy(&node, &saved, "cut");
    let state = fs::File::options().write(true).open(cut.join("state")).expect("the state");
    state.set_len(state.metadata().expect("metadata").len() / 2).expect("cut");
    let status = restore(&node, pod.restore_request(&node, &cut), DEADLINE).expect_err("cut");
    assert!(status.message().contains("restore the virtual machine"), "{status}");
    assert_nothing_restored(&node, "a state that is cut");
    let status = restore(&node, request.clone(), Duration::from_millis(800)).expect_err("late");
    assert!(is_late(&status), "{status}");
    wait_long(&node, "the restore is undone", || node.crictl(&["pods", "-q"]).ok().is_empty());
    assert_nothing_restored(&node, "a restore that is late");
    assert_eq!(files(&saved), ["checkpoint.json", "layer-0.tar", "state"], "a restore changes nothing of it");
    let restored = pod.restore(&node, &saved);
    let length = restored.log(0).len();
    restored.start(&node, 0);
    wait_long(&node, "it prints", || restored.log(0).len() > length);
    node.remove_all_pods();
    node.end();
}

/// Kills the daemon when a condition holds during a request, and starts another one.
fn kill_during<T: Send>(
    node: &mut Node,
    request: impl FnOnce(&Node) -> Result<T, Status> + Send,
    condition: impl Fn(&Node) -> bool,
) {
    let killed: &Node = node;
    std::thread::scope(|scope| {
        let request = scope.spawn(|| request(killed).map(drop));
        let begin = Instant::now();
        while !condition(killed) && !request.is_finished() {
            assert!(begin.elapsed() < DEADLINE, "it does not begin");
            sleep(Duration::from_millis(5));
        }
        killed.kill(&killed.process("pinion"));
        request.join().expect("a request").expect_err("its daemon was killed");
    });
    node.reap_daemon();
    node.start_daemon();
}

#[test]
fn a_daemon_that_is_killed_leaves_neither_a_paused_pod_nor_half_of_one() {
    let mut node = node_with_guests("");
    let pod = Pod::run(&node, "counter", &[("count", COUNT)]);
    pod.wait_for(&node, 0, 10);
    let partial = directory(&node, "partial");
    let state = partial.join("state");
    let request = pod.checkpoint_request(&partial);
    kill_during(&mut node, |node| checkpoint(node, request, DEADLINE), |_| state.exists());
    assert!(!partial.join("checkpoint.json").exists());
    let last = pod.numbers(0).1;
    pod.wait_for(&node, 0, last + 20);
    assert_eq!(pod.exec(&node, 0, "echo alive").ok(), "alive");
    let saved = directory(&node, "saved");
    pod.checkpoint(&node, &saved);
    node.remove_all_pods();

    for count in [1, 2] {
        let request = pod.restore_request(&node, &saved);
        kill_during(&mut node, |node| restore(node, request, DEADLINE), |node| guests(node).len() == count);
        wait_long(&node, "the restore is undone", || node.crictl(&["pods", "-q"]).ok().is_empty());
        assert_nothing_restored(&node, "a killed daemon");
    }
    let restored = pod.restore(&node, &saved);
    let length = restored.log(0).len();
    restored.start(&node, 0);
    wait_long(&node, "it prints", || restored.log(0).len() > length);
    node.remove_all_pods();
    node.end();
}
