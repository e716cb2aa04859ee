//! A plugin of the network that sleeps, and a client that asks again and again: one pod, one id, and nobody else waits.
//!
//! Short by itself. `tests/external/slow-cni` runs it as operators meet it: a plugin that sleeps for five minutes, a
//! hundred requests with a deadline of four seconds each.

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
/// A bound for a broken run, not a measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the plugin sleeps, how often it is asked for the pod, and with which deadline.
struct Pace {
    /// `None`: until it is let go.
    sleep: Option<u64>,
    deadline: Duration,
    requests: u32,
}

impl Pace {
    fn of_environment() -> Self {
        let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        Self {
            sleep: number("SLOW_CNI_SLEEP"),
            deadline: Duration::from_millis(number("SLOW_CNI_DEADLINE_MS").unwrap_or(100)),
            requests: number("SLOW_CNI_REQUESTS").map_or(10, |n| u32::try_from(n).expect("not so many")),
        }
    }
}

struct Slow {
    node: Node,
    runtime: RuntimeServiceClient<Channel>,
}

impl Slow {
    /// A node whose plugin sleeps when it attaches a pod whose name begins with `slow`.
    async fn node(sleep: Option<u64>) -> Self {
        let cni = vec![("10-slow.conflist".to_owned(), LIST.to_owned())];
        let mut node = Node::cold(Options { cni, ..Options::default() });
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
        let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.first());
        let channel = cri_proto::connect(socket).await.expect("the daemon answers");
        Self { node, runtime: RuntimeServiceClient::new(channel) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.dir.path().join(name)
    }

    /// How often plugins were called with this command since the file was last removed.
    fn calls(&self, command: &str) -> usize {
        fs::read_to_string(self.path("calls")).unwrap_or_default().lines().filter(|line| *line == command).count()
    }

    fn ask(&self, name: &str) -> JoinHandle<Result<String, tonic::Status>> {
        let mut runtime = self.runtime.clone();
        let request = v1::RunPodSandboxRequest { config: Some(pod(name)), runtime_handler: String::new() };
        tokio::spawn(async move { Ok(runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id) })
    }

    /// As a client of gRPC does it: the deadline is in the request, and is watched here.
    async fn ask_within(&self, name: &str, deadline: Duration) -> Result<String, tonic::Status> {
        let mut runtime = self.runtime.clone();
        let mut request =
            Request::new(v1::RunPodSandboxRequest { config: Some(pod(name)), runtime_handler: String::new() });
        request.set_timeout(deadline);
        Ok(runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    /// The id of the pod that is being made.
    fn making(&self) -> String {
        wait_until("the plugin runs", || self.calls("ADD") > 0);
        let said = self.node.pinion(&["why", "--json"]).json();
        let all = said.as_array().expect("a list");
        let slow: Vec<_> =
            all.iter().filter(|one| one["state"] == "being made" && one["name"] == "default/slow").collect();
        assert_eq!(slow.len(), 1, "{said}");
        slow[0]["id"].as_str().expect("its id").to_owned()
    }

    /// The life of another pod: made, listed, probed, stopped, removed. The longest request of it.
    async fn another_pod(&self, name: &str) -> Duration {
        let mut runtime = self.runtime.clone();
        let mut longest = Duration::ZERO;
        let mut begin = Instant::now();
        let mut lap = || {
            longest = longest.max(begin.elapsed());
            begin = Instant::now();
            longest
        };
        let id = self.ask(name).await.expect("task").expect("another pod");
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

    fn no_plugin_runs(&self) {
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
async fn requests_that_time_out_and_come_again_make_one_pod() {
    let pace = Pace::of_environment();
    let slow = Slow::node(pace.sleep).await;
    let (mut timed_out, mut answers, mut longest, mut lives) = (0, Vec::new(), Duration::ZERO, 0u32);
    let begin = Instant::now();
    for number in 0..pace.requests {
        let round = Instant::now();
        let quick = format!("quick{number}");
        let (asked, other) = tokio::join!(slow.ask_within("slow", pace.deadline), slow.another_pod(&quick));
        (longest, lives) = (longest.max(other), lives + 1);
        match asked {
            Ok(id) => answers.push(id),
            Err(status) => {
                assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
                assert!(status.message().contains("imeout") || status.message().contains("deadline"), "{status:?}");
                timed_out += 1;
            }
        }
        // A client that was answered does not ask again at once.
        tokio::time::sleep(pace.deadline.saturating_sub(round.elapsed())).await;
    }
    let id = if pace.sleep.is_none() {
        assert_eq!((timed_out, answers.len()), (pace.requests, 0));
        let id = slow.making();
        let waits = slow.node.pinion(&["why", "slow"]).ok();
        assert!(waits.contains("CNI plugin slow ADD, which runs"), "{waits}");
        let last = slow.ask("slow");
        fs::write(slow.path("go"), "\n").expect("it is let go");
        answers.push(timeout(PATIENCE, last).await.expect("an answer").expect("task").expect("the pod"));
        id
    } else {
        answers[0].clone()
    };
    println!(
        "{timed_out} of {} requests met their deadline in {} s, {} got the id; {lives} other pods meanwhile, longest request {} ms",
        pace.requests,
        begin.elapsed().as_secs(),
        answers.len(),
        longest.as_millis()
    );
    assert!(answers.iter().all(|answer| *answer == id), "{answers:?}");
    // Its own ADD, and those of the others.
    assert_eq!(slow.calls("ADD"), 1 + lives as usize);
    let mut runtime = slow.runtime.clone();
    let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.expect("list").into_inner().items;
    assert_eq!(pods.iter().map(|pod| (&pod.id, pod.state)).collect::<Vec<_>>(), [(&id, 0)]);
    assert_eq!(slow.pins(), 1);
    slow.no_plugin_runs();
    slow.node.remove_all_pods();
    assert_eq!(slow.calls("DEL"), 1 + lives as usize);
    slow.node.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_plugin_sleeps_is_stopped_or_removed_at_once() {
    let slow = Slow::node(Some(100_000)).await;
    let mut runtime = slow.runtime.clone();
    for verb in ["stop", "remove", "stop by another client, whose call is cancelled"] {
        let _ = fs::remove_file(slow.path("calls"));
        let made = slow.ask("slow");
        let id = slow.making();
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        match verb {
            "stop" => drop(timeout(PATIENCE, runtime.stop_pod_sandbox(stop)).await.expect("at once").expect(verb)),
            "remove" => {
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: id.clone() };
                timeout(PATIENCE, runtime.remove_pod_sandbox(remove)).await.expect("at once").expect(verb);
            }
            // A call that is cancelled before it was sent is none: it is made until one arrives.
            _ => {
                let begin = Instant::now();
                while !made.is_finished() && begin.elapsed() < PATIENCE {
                    drop(timeout(Duration::from_millis(1), runtime.stop_pod_sandbox(stop.clone())).await);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        let status = timeout(PATIENCE, made).await.expect("it does not hang").expect("task").expect_err("taken back");
        assert_eq!(status.code(), Code::FailedPrecondition, "{verb}: {status:?}");
        assert!(status.message().contains("it was stopped while it was being made"), "{verb}: {status:?}");
        let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.expect("list").into_inner();
        assert_eq!(pods.items, [], "{verb}");
        assert_eq!((slow.calls("ADD"), slow.calls("DEL"), slow.pins()), (1, 1, 0), "{verb}");
        slow.no_plugin_runs();
    }
    slow.node.end();
}
