//! A CNI plugin that sleeps, and a client that repeats its request: one pod with one id is created, and other pods are
//! not delayed.
//!
//! The test is short by default. `tests/external/slow-cni` runs it with realistic times: a plugin that sleeps for five
//! minutes, and a hundred requests with a deadline of four seconds each.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, runtime_service_client::RuntimeServiceClient};
use system_tests::{Node, Options, wait_until};
use tokio::{task::JoinHandle, time::timeout};
use tonic::{Code, Request, transport::Channel};

const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "slow", "plugins": [{"type": "slow"}]}"#;
/// A bound for failing tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long the plugin sleeps, and the number and deadline of the requests for the pod.
struct Timing {
    /// Seconds; `None`: until it is released.
    sleep: Option<u64>,
    deadline: Duration,
    requests: u32,
}

impl Timing {
    fn from_environment() -> Self {
        let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        Self {
            sleep: number("SLOW_CNI_SLEEP"),
            deadline: Duration::from_millis(number("SLOW_CNI_DEADLINE_MS").unwrap_or(100)),
            requests: number("SLOW_CNI_REQUESTS").map_or(10, |n| u32::try_from(n).expect("a smaller number")),
        }
    }
}

struct SlowNode {
    node: Node,
    runtime: RuntimeServiceClient<Channel>,
}

impl SlowNode {
    /// Starts a node whose plugin sleeps when it attaches a pod whose name starts with `slow`.
    async fn start(sleep: Option<u64>) -> Self {
        let cni = vec![("10-slow.conflist".to_owned(), LIST.to_owned())];
        let mut node = Node::new(Options { cni, ..Options::default() });
        let dir = node.dir.path().to_owned();
        let config = fs::read_to_string(node.config()).expect("configuration");
        fs::write(node.config(), format!("{config}network.cni_bin_dirs = [\"{}/bin\"]\n", dir.display()))
            .expect("write");
        let wait = match sleep {
            Some(seconds) => format!("sleep {seconds}"),
            None => format!("read -r _ < {}/go", dir.display()),
        };
        let script = format!(
            "#!/bin/sh\ncat > /dev/null\necho $CNI_COMMAND >> {dir}/calls\n\
             case $CNI_COMMAND:$CNI_ARGS in ADD:*K8S_POD_NAME=slow*) {wait};; esac\n\
             [ $CNI_COMMAND != ADD ] || echo '{{\"cniVersion\":\"1.0.0\",\"ips\":[{{\"address\":\"10.9.0.7/24\"}}]}}'\n",
            dir = dir.display()
        );
        fs::create_dir(dir.join("bin")).expect("directory");
        fs::write(dir.join("bin/slow"), script).expect("plugin");
        fs::set_permissions(dir.join("bin/slow"), fs::Permissions::from_mode(0o755)).expect("plugin");
        node.run("mkfifo", &[dir.join("go").to_str().expect("UTF-8")]).ok();
        node.start_daemon();
        node.load_image();
        let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
        let channel = cri_proto::connect(socket).await.expect("connect to the daemon");
        Self { node, runtime: RuntimeServiceClient::new(channel) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.dir.path().join(name)
    }

    /// Returns how often plugins were called with this command since the file was removed last.
    fn calls(&self, command: &str) -> usize {
        fs::read_to_string(self.path("calls")).unwrap_or_default().lines().filter(|line| *line == command).count()
    }

    fn run_pod(&self, name: &str) -> JoinHandle<Result<String, tonic::Status>> {
        let mut runtime = self.runtime.clone();
        let request = v1::RunPodSandboxRequest { config: Some(pod(name)), runtime_handler: String::new() };
        tokio::spawn(async move { Ok(runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id) })
    }

    /// Sends the deadline with the request and enforces it in the client, as gRPC clients do.
    async fn run_pod_within(&self, name: &str, deadline: Duration) -> Result<String, tonic::Status> {
        let mut runtime = self.runtime.clone();
        let mut request =
            Request::new(v1::RunPodSandboxRequest { config: Some(pod(name)), runtime_handler: String::new() });
        request.set_timeout(deadline);
        Ok(runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    /// Returns the id of the pod that is being created.
    fn pending_pod(&self) -> String {
        wait_until("the plugin is running", || self.calls("ADD") > 0);
        let why = self.node.pinion(&["why", "--json"]).json();
        let objects = why.as_array().expect("a list");
        let is_pending =
            |object: &&serde_json::Value| object["state"] == "being created" && object["name"] == "default/slow";
        let slow: Vec<_> = objects.iter().filter(is_pending).collect();
        assert_eq!(slow.len(), 1, "{why}");
        slow[0]["id"].as_str().expect("its id").to_owned()
    }

    /// Creates, lists, probes, stops and removes another pod. Returns the duration of the longest request.
    async fn another_pod(&self, name: &str) -> Duration {
        let mut runtime = self.runtime.clone();
        let mut longest = Duration::ZERO;
        let mut start = Instant::now();
        let mut lap = || {
            longest = longest.max(start.elapsed());
            start = Instant::now();
            longest
        };
        let id = self.run_pod(name).await.expect("task").expect("another pod");
        lap();
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: id.clone(),
            config: Some(container()),
            sandbox_config: Some(pod(name)),
        };
        let container_id = runtime.create_container(request).await.expect("create").into_inner().container_id;
        lap();
        runtime.start_container(v1::StartContainerRequest { container_id: container_id.clone() }).await.expect("start");
        lap();
        let cmd = vec!["echo".into(), "on".into()];
        let request = v1::ExecSyncRequest { container_id: container_id.clone(), cmd, timeout: 20 };
        assert_eq!(runtime.exec_sync(request).await.expect("probe").into_inner().stdout, b"on\n");
        lap();
        let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.expect("list").into_inner();
        assert!(pods.items.iter().any(|pod| pod.id == id), "{pods:?}");
        lap();
        runtime.status(v1::StatusRequest::default()).await.expect("status");
        lap();
        runtime.stop_container(v1::StopContainerRequest { container_id, timeout: 0 }).await.expect("stop");
        lap();
        runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await.expect("stop");
        lap();
        runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: id }).await.expect("remove");
        lap()
    }

    fn pins(&self) -> usize {
        self.node.run("ls", &["/run/netns"]).ok().lines().count()
    }

    fn assert_no_plugin(&self) {
        let all = self.node.processes();
        assert!(!all.iter().any(|process| process.command_line().contains("/bin/slow")), "{all:?}");
    }
}

fn pod(name: &str) -> v1::PodSandboxConfig {
    let metadata = v1::PodSandboxMetadata {
        name: name.into(),
        uid: format!("uid-{name}"),
        namespace: "default".into(),
        attempt: 0,
    };
    let linux = v1::LinuxPodSandboxConfig::default();
    v1::PodSandboxConfig { metadata: Some(metadata), linux: Some(linux), ..Default::default() }
}

fn container() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "docker.io/library/demo:1".into(), ..Default::default() }),
        command: vec!["sleep".into(), "100000".into()],
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_time_out_and_are_repeated_create_one_pod() {
    let timing = Timing::from_environment();
    let slow = SlowNode::start(timing.sleep).await;
    let (mut timed_out, mut ids, mut longest, mut others) = (0, Vec::new(), Duration::ZERO, 0u32);
    let start = Instant::now();
    for number in 0..timing.requests {
        let round = Instant::now();
        let quick = format!("quick{number}");
        let (result, duration) = tokio::join!(slow.run_pod_within("slow", timing.deadline), slow.another_pod(&quick));
        (longest, others) = (longest.max(duration), others + 1);
        match result {
            Ok(id) => ids.push(id),
            Err(status) => {
                assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
                assert!(status.message().contains("imeout") || status.message().contains("deadline"), "{status:?}");
                timed_out += 1;
            }
        }
        // A client that got a response does not repeat its request immediately.
        tokio::time::sleep(timing.deadline.saturating_sub(round.elapsed())).await;
    }
    let id = if timing.sleep.is_none() {
        assert_eq!((timed_out, ids.len()), (timing.requests, 0));
        let id = slow.pending_pod();
        let waits = slow.node.pinion(&["why", "slow"]).ok();
        assert!(waits.contains("CNI plugin slow ADD, which is running"), "{waits}");
        let last = slow.run_pod("slow");
        fs::write(slow.path("go"), "\n").expect("released");
        ids.push(timeout(TIMEOUT, last).await.expect("a response").expect("task").expect("the pod"));
        id
    } else {
        ids[0].clone()
    };
    println!(
        "{timed_out} of {} requests timed out within {} s, {} got the id; {others} other pods in the meantime, longest request {} ms",
        timing.requests,
        start.elapsed().as_secs(),
        ids.len(),
        longest.as_millis()
    );
    assert!(ids.iter().all(|other| *other == id), "{ids:?}");
    // One ADD of this pod, and those of the other pods.
    assert_eq!(slow.calls("ADD"), 1 + others as usize);
    let mut runtime = slow.runtime.clone();
    let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.expect("list").into_inner().items;
    assert_eq!(pods.iter().map(|pod| (&pod.id, pod.state)).collect::<Vec<_>>(), [(&id, 0)]);
    assert_eq!(slow.pins(), 1);
    slow.assert_no_plugin();
    slow.node.remove_all_pods();
    assert_eq!(slow.calls("DEL"), 1 + others as usize);
    slow.node.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_plugin_sleeps_is_stopped_or_removed_at_once() {
    let slow = SlowNode::start(Some(100_000)).await;
    let mut runtime = slow.runtime.clone();
    for verb in ["stop", "remove", "stop by another client, whose call is cancelled"] {
        let _ = fs::remove_file(slow.path("calls"));
        let task = slow.run_pod("slow");
        let id = slow.pending_pod();
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        match verb {
            "stop" => drop(timeout(TIMEOUT, runtime.stop_pod_sandbox(stop)).await.expect("immediately").expect(verb)),
            "remove" => {
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: id.clone() };
                timeout(TIMEOUT, runtime.remove_pod_sandbox(remove)).await.expect("immediately").expect(verb);
            }
            // A call that is cancelled before it was sent has no effect: it is repeated until one arrives.
            _ => {
                let start = Instant::now();
                while !task.is_finished() && start.elapsed() < TIMEOUT {
                    drop(timeout(Duration::from_millis(1), runtime.stop_pod_sandbox(stop.clone())).await);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        let status = timeout(TIMEOUT, task).await.expect("it does not hang").expect("task").expect_err("rolled back");
        assert_eq!(status.code(), Code::FailedPrecondition, "{verb}: {status:?}");
        assert!(status.message().contains("it was stopped while it was being created"), "{verb}: {status:?}");
        let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.expect("list").into_inner();
        assert_eq!(pods.items, [], "{verb}");
        assert_eq!((slow.calls("ADD"), slow.calls("DEL"), slow.pins()), (1, 1, 0), "{verb}");
        slow.assert_no_plugin();
    }
    slow.node.end();
}
