//! `containers.log_size_max`: logs with a maximum size, read as by the kubelet.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, process::Stdio, thread};

use serde_json::json;
use system_tests::{ContainerSpec, Node, Options, PodSpec, wait_until};

const SIZE_MAX: u64 = 20_000;
/// Numbers in two halves, the second one when there is a file `/go`.
const SCRIPT: &str = "count() { while [ $i -lt $1 ]; do i=$((i+1)); echo $i; [ $((i % 100)) = 0 ] && sleep 0.1; done; }; \
                      i=0; count 1000; while [ ! -e /go ]; do sleep 0.05; done; count 2000; sleep 1000";

fn log_inode(path: &PathBuf) -> u64 {
    let metadata = fs::metadata(path).expect("the log always exists");
    assert!(metadata.len() <= SIZE_MAX, "{}", metadata.len());
    metadata.ino()
}

#[test]
fn a_follower_of_a_log_with_a_maximum_size_reads_every_line_also_while_the_daemon_is_down() {
    let config = format!("containers.log_size_max = {SIZE_MAX}\nmetrics.address = \"127.0.0.1:9470\"");
    let mut node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    let pod = PodSpec::named(&node, "pod");
    let pod_id = node.run_pod(&pod);
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("one", "demo:1", &["sh", "-c", SCRIPT]));
    let log = node.logs().join("pod/one.log");
    let last = |number: u32| {
        let line = format!("stdout F {number}\n");
        move |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.ends_with(&line))
    };
    // The kubelet has the same reader.
    let mut follow = node.command(std::env::var("CRICTL").expect("CRICTL names the crictl program"));
    follow.args(["--config", "/dev/null", "--runtime-endpoint", "unix:///run/pinion/pinion.sock", "logs", "-f", &id]);
    let follower = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("crictl starts");
    let first = log_inode(&log);
    wait_until("the first half is logged", || last(1000)(&log));
    let half = log_inode(&log);
    assert_ne!(first, half, "the log was replaced");
    let (metrics, exec) = (["-fsS", "http://127.0.0.1:9470/metrics"], |node: &Node, script: &str| {
        node.crictl(&["exec", &id, "sh", "-c", script]).ok()
    });
    let dropped = || {
        let text = node.run("curl", &metrics).ok();
        let line = text.lines().find(|line| line.starts_with("pinion_log_dropped_bytes_total ")).map(str::to_owned);
        line.and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok()).expect("the metric")
    };
    assert!(dropped() > 10_000.0, "{}", dropped());
    // The next log writer continues in the file that the last one created, with the same limit.
    node.kill_monitor();
    exec(&node, "touch /go");
    node.kill_daemon();
    wait_until("the second half is logged", || last(2000)(&log));
    let end = log_inode(&log);
    assert_ne!(half, end, "the log was replaced without a daemon");
    assert!(fs::read_dir(log.parent().expect("a directory")).expect("listed").count() == 1);
    node.start_daemon();
    node.crictl(&["stop", "-t", "0", &id]).ok();
    let output = thread::spawn(move || follower.wait_with_output()).join().expect("no panic").expect("crictl exits");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(
        numbers.iter().copied().eq(1..=2000),
        "{} of 2000 lines; {}",
        numbers.len(),
        String::from_utf8_lossy(&output.stderr)
    );
    let notice = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notice.contains("the log reached its maximum size, 20000 bytes"), "{notice}");
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_container_that_writes_as_fast_as_it_can_never_exceeds_the_maximum_size() {
    let config = "containers.log_size_max = 100000".to_owned();
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    let mut pod = PodSpec::named(&node, "pod");
    pod.0["linux"]["security_context"]["namespace_options"] = json!({"pid": 1, "network": 2});
    let pod_id = node.run_pod(&pod);
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("one", "demo:1", &["seq", "1", "2000000"]));
    let log = node.logs().join("pod/one.log");
    let mut largest = 0;
    wait_until("the container exits", || {
        largest = largest.max(fs::metadata(&log).expect("the log always exists").len());
        node.crictl(&["inspect", &id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    assert!((50_000..=100_000).contains(&largest), "{largest}");
    let text = fs::read_to_string(&log).expect("the log");
    assert!(text.ends_with("stdout F 2000000\n"), "{}", &text[text.len() - 100..]);
    node.remove_all_pods();
    node.end();
}
