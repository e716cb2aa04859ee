//! Observability of the daemon: metrics, traces and logs.

mod cadvisor;
mod collector;

use std::path::PathBuf;

use collector::{Collector, attribute};
use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use system_tests::{Node, Options, wait_until};
use tonic::{Code, Request, transport::Channel};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SECRET: &str = "correct-horse-battery-staple";

fn node(config: &str) -> Node {
    Node::with(Options { config: config.to_owned(), ..Options::default() })
}

/// Connects to the daemon from outside of the node.
async fn channel(node: &Node) -> Channel {
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
    cri_proto::connect(socket).await.expect("connect to the daemon")
}

fn scrape(node: &Node, accept: &str) -> String {
    let accept = format!("Accept: {accept}");
    node.run("curl", &["-fsS", "-i", "-H", &accept, "http://127.0.0.1:9470/metrics"]).ok().replace('\r', "")
}

fn pod(name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "shop".into(),
            attempt: 0,
        }),
        linux: Some(v1::LinuxPodSandboxConfig::default()),
        ..Default::default()
    }
}

fn container(command: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "docker.io/library/demo:1".into(), ..Default::default() }),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        envs: vec![v1::KeyValue { key: "TOKEN".into(), value: SECRET.into() }],
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    }
}

/// Runs a pod with a container, and returns the ids of both.
async fn run(channel: &Channel) -> (String, String) {
    let mut runtime = RuntimeServiceClient::new(channel.clone());
    let config = pod("web");
    let mut request =
        Request::new(v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() });
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    request.metadata_mut().insert("traceparent", parent.parse().expect("ASCII"));
    let sandbox = runtime.run_pod_sandbox(request).await.expect("a pod").into_inner().pod_sandbox_id;
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container(&["sleep", "100000"])),
        sandbox_config: Some(config),
    };
    let id = runtime.create_container(request).await.expect("a container").into_inner().container_id;
    runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.expect("it starts");
    (sandbox, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_metric_is_in_a_scrape() {
    let node = node("metrics.address = \"127.0.0.1:9470\"");
    node.load_image();
    let channel = channel(&node).await;
    run(&channel).await;
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let docs = std::fs::read_to_string(docs).expect("docs/metrics.md");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")).filter(|row| row.contains("_"));
    let documented: Vec<(&str, bool)> = rows
        .filter_map(|row| Some((row.split_once('`')?.0, row.contains("| histogram |"))))
        .filter(|(name, _)| name.starts_with("pinion_") || name.starts_with("process_"))
        .collect();
    assert!(documented.len() > 50, "the table was found: {documented:?}");

    let page = scrape(&node, "application/openmetrics-text; version=1.0.0");
    assert!(page.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\n"), "{page}");
    assert!(page.ends_with("# EOF"));
    for (name, histogram) in &documented {
        let sample = if *histogram { format!("{name}_bucket") } else { (*name).to_owned() };
        assert!(page.lines().any(|line| line.starts_with(&sample)), "{name} is not in the scrape");
    }
    let samples = |line: &&str| !line.starts_with('#') && line.contains(' ') && line.starts_with('p');
    for line in page.lines().filter(samples) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let is_documented = documented.iter().any(|(metric, histogram)| {
            name == *metric
                || *histogram
                    && name.strip_prefix(metric).is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
        });
        assert!(is_documented, "{name} is not documented");
    }
    for line in [
        "pinion_rpc_handled_total{service=\"runtime\",rpc=\"RunPodSandbox\",code=\"OK\"} 1\n",
        "pinion_sandboxes{state=\"ready\"} 1\n",
        "pinion_containers{state=\"running\"} 1\n",
        "pinion_monitor_requests_total{request=\"Start\"} 1\n",
        "pinion_monitor_up 1\n",
        "pinion_images 1\n",
        "pinion_rpc_duration_seconds_count{service=\"runtime\",rpc=\"StartContainer\"} 1\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    let older = scrape(&node, "*/*");
    assert!(older.contains("content-type: text/plain; version=0.0.4; charset=utf-8\n") && !older.contains("# EOF"));
    let health = node.run("curl", &["-sS", "http://127.0.0.1:9470/healthz"]).ok();
    assert!(health.contains("runtime: ready"), "{health}");
    node.remove_all_pods();
    node.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_tree_of_spans_below_the_span_of_the_client() {
    let node = node("tracing.endpoint = \"http://127.0.0.1:4317\"\ntracing.sample_ratio = 1.0");
    let collector = Collector::start(&node, 4317);
    node.load_image();
    let channel = channel(&node).await;
    let (sandbox, id) = run(&channel).await;
    let mut runtime = RuntimeServiceClient::new(channel.clone());
    let missing = v1::ContainerStatusRequest { container_id: "missing".into(), verbose: false };
    assert_eq!(runtime.container_status(missing).await.expect_err("unknown").code(), Code::NotFound);

    let name = |method: &str| format!("runtime.v1.RuntimeService/{method}");
    let spans = collector
        .spans(|spans| {
            let all = ["RunPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus"];
            all.iter().all(|method| spans.iter().any(|span| span.name == name(method)))
        })
        .await;
    let root = |method: &str| spans.iter().find(|span| span.name == name(method)).expect("a span");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();

    let pod = root("RunPodSandbox");
    assert_eq!((hex(&pod.trace_id).as_str(), hex(&pod.parent_span_id).as_str()), (TRACE, "00f067aa0ba902b7"));
    assert_eq!(attribute(pod, "k8s.pod.name").as_deref(), Some("web"));
    assert_eq!(attribute(pod, "rpc.grpc.status_code").as_deref(), Some("0"));
    let child = |parent: &opentelemetry_proto::tonic::trace::v1::Span, name: &str| {
        let child = spans.iter().find(|span| span.name == name && span.parent_span_id == parent.span_id);
        child.unwrap_or_else(|| panic!("{} has no {name}: {spans:#?}", parent.name)).clone()
    };
    let run = child(pod, "run_sandbox");
    let network = child(&run, "network");
    child(&network, "attach");
    assert!(spans.iter().filter(|span| hex(&span.trace_id) == TRACE).count() >= 4);

    let create = root("CreateContainer");
    assert_eq!(attribute(create, "pinion.sandbox.id"), Some(sandbox));
    assert_eq!(attribute(create, "container.image.name").as_deref(), Some("docker.io/library/demo:1"));
    child(&child(create, "create_container"), "prepare");
    assert_eq!(attribute(root("StartContainer"), "container.id"), Some(id));
    let refused = root("ContainerStatus");
    assert_eq!(attribute(refused, "rpc.grpc.status_code").as_deref(), Some("5"));
    assert!(refused.status.is_none(), "an invalid request is not an error of the server");
    node.remove_all_pods();
    node.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_not_logged_and_repeated_lines_are_suppressed() {
    let node = node(
        "log.level = \"trace\"\nlog.format = \"json\"\ntracing.endpoint = \"http://127.0.0.1:4317\"\ntracing.sample_ratio = 1.0",
    );
    let collector = Collector::start(&node, 4317);
    node.load_image();
    let channel = channel(&node).await;
    let (_, id) = run(&channel).await;
    let mut runtime = RuntimeServiceClient::new(channel.clone());
    let command = ["echo", SECRET].map(str::to_owned).to_vec();
    let exec = v1::ExecSyncRequest { container_id: id.clone(), cmd: command.clone(), timeout: 10 };
    runtime.exec_sync(exec).await.expect("it runs");
    let exec = v1::ExecRequest { container_id: id, cmd: command, stdout: true, ..Default::default() };
    let url = runtime.exec(exec).await.expect("a URL").into_inner().url;
    let token = url.rsplit('/').next().expect("a token").to_owned();
    let auth = v1::AuthConfig { username: "user".into(), password: SECRET.into(), ..Default::default() };
    let image = v1::ImageSpec { image: "127.0.0.1:1/private:1".into(), ..Default::default() };
    let pull = v1::PullImageRequest { image: Some(image), auth: Some(auth), sandbox_config: None };
    ImageServiceClient::new(channel.clone()).pull_image(pull).await.expect_err("no registry is listening");
    for _ in 0..100 {
        let missing = v1::StartContainerRequest { container_id: "missing".into() };
        runtime.start_container(missing).await.expect_err("unknown");
    }
    let missing = v1::ContainerStatusRequest { container_id: "missing".into(), verbose: false };
    runtime.container_status(missing).await.expect_err("unknown");
    let is_line = |line: &str| line.contains("\"ContainerStatus\"") && line.contains("NotFound");
    // The log is written asynchronously by a thread.
    wait_until("the line is written", || node.daemon_log().lines().any(is_line));
    let spans = collector.spans(|spans| spans.iter().any(|span| span.name.ends_with("/PullImage"))).await;

    let log = node.daemon_log();
    for secret in [SECRET, token.as_str()] {
        assert!(secret.len() > 7 && !log.contains(secret), "the log contains {secret}");
        assert!(!format!("{spans:?}").contains(secret), "a span contains {secret}");
    }
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    let count = |rpc: &str, code: &str| lines.iter().filter(|line| line["rpc"] == rpc && line["code"] == code).count();
    assert_eq!(count("PullImage", "Unavailable"), 1, "one line per failure");
    assert_eq!(count("StartContainer", "NotFound"), 10, "an identical line is suppressed after ten times");
    let levels = |rpc: &str| -> Vec<&serde_json::Value> {
        lines
            .iter()
            .filter(|line| line["rpc"] == rpc && line["code"] == "NotFound")
            .map(|line| &line["level"])
            .collect()
    };
    assert_eq!(levels("ContainerStatus"), ["debug"], "clients use this request to check whether a container exists");
    assert!(levels("StartContainer").iter().all(|level| *level == "info"));
    let failed = lines.iter().find(|line| line["rpc"] == "PullImage" && line["code"].is_string()).expect("a line");
    assert_eq!((&failed["level"], &failed["image"]), (&"warn".into(), &"127.0.0.1:1/private:1".into()));
    assert!(failed["ms"].is_number() && failed["trace"].as_str().is_some_and(|trace| trace.len() == 32));
    node.remove_all_pods();
    node.end();
}
