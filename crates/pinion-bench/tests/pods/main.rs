//! `pinion-bench pods` measures engines whose behaviour is known.

mod engine;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use engine::{Behaviour, Engine};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pinion-bench"))
}

fn pods(engines: &[&str], arguments: &[&str]) -> Command {
    scenario(&["pods", "--density", "0", "--warmup", "1"], engines, arguments)
}

fn scenario(words: &[&str], engines: &[&str], arguments: &[&str]) -> Command {
    let mut command = bench();
    command.args(words).args(["--image", "demo:1"]);
    for engine in engines {
        command.args(["--engine", engine]);
    }
    command.args(arguments);
    command
}

fn succeed(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a summary")).expect("JSON")
}

/// Returns the row of a metric for a number of pods at a time.
fn row<'a>(summary: &'a Value, metric: &str, in_flight: f64) -> &'a Value {
    let rows = summary[0]["rows"].as_array().expect("rows");
    let is_same = |row: &&Value| row["metric"]["name"] == metric && row["parameter"].as_f64() == Some(in_flight);
    rows.iter().find(is_same).unwrap_or_else(|| panic!("no row {metric}, {in_flight}"))
}

#[test]
fn known_delays_are_measured_to_five_percent_and_the_order_of_engines_does_not_matter() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::start(directory.path(), Behaviour { run_ms: 200, stop_ms: 100, fail_every: 0 });
    let slow = Engine::start(directory.path(), Behaviour { run_ms: 300, stop_ms: 100, fail_every: 0 });
    let json = directory.path().join("summary.json");
    let (one, same, slower) = (engine.named("one"), engine.named("same"), slow.named("slower"));
    let engines = [one.as_str(), same.as_str(), slower.as_str()];
    let arguments = ["-n", "1", "--rounds", "8", "--in-flight", "1", "--json", json.to_str().expect("UTF-8")];
    let text = succeed(pods(&engines, &arguments).output().expect("pinion-bench runs"));

    let summary = read(&json);
    let median = |metric: &str, contestant: usize| {
        row(&summary, metric, 1.0)["contestants"][contestant]["median"]["value"].as_f64().expect("a median")
    };
    for (metric, contestant, expected) in [
        ("RunPodSandbox", 0, 200.0),
        ("RunPodSandbox", 2, 300.0),
        ("StopContainer", 1, 100.0),
        ("whole life", 0, 300.0),
        ("whole life", 2, 400.0),
    ] {
        let measured = median(metric, contestant);
        assert!((expected..expected * 1.05).contains(&measured), "{metric}: {measured} ms, not {expected}");
    }
    let whole = row(&summary, "whole life", 1.0);
    let (same, slower) = (&whole["contestants"][1], &whole["contestants"][2]);
    let ratio = same["first_to_this"]["value"].as_f64().expect("a ratio");
    assert!((0.98..1.02).contains(&ratio), "the same engine under another name: {ratio}");
    assert_eq!((&slower["verdict"], &slower["failures"]), (&"better".into(), &0.into()));
    assert!(text.contains("slower 3") && text.contains(" % more."), "{text}");
}

#[test]
fn threads_have_a_pod_each() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::start(directory.path(), Behaviour { run_ms: 400, stop_ms: 0, fail_every: 0 });
    let json = directory.path().join("summary.json");
    let arguments = ["--threads", "1,3", "--iterations", "2", "--rounds", "6", "--json", json.to_str().expect("UTF-8")];
    let command = scenario(&["bucket"], &[&engine.named("fake")], &arguments).output();
    let text = succeed(command.expect("pinion-bench runs"));
    let summary = read(&json);
    for threads in [1.0, 3.0] {
        let row = row(&summary, "pods run, stopped and deleted", threads);
        let rate = row["contestants"][0]["median"]["value"].as_f64().expect("a median");
        assert!((threads * 2.375..threads * 2.5).contains(&rate), "{threads} threads: {rate} pods in a second");
    }
    assert!(text.contains("Published: Phil Estes") && text.contains("1.40, 2.21, 2.81 per second"), "{text}");
    assert_eq!(engine.pods(), 0, "all pods are deleted");
}

#[test]
fn failures_are_counted_and_the_run_continues() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::start(directory.path(), Behaviour { run_ms: 0, stop_ms: 0, fail_every: 10 });
    let json = directory.path().join("summary.json");
    let html = directory.path().join("report.html");
    let arguments = ["-n", "10", "--rounds", "9", "--in-flight", "1", "--json", json.to_str().expect("UTF-8")];
    let mut command = pods(&[&engine.named("fake")], &arguments);
    let text = succeed(command.arg("--html").arg(&html).output().expect("pinion-bench runs"));
    let summary = read(&json);
    let run = &row(&summary, "RunPodSandbox", 1.0)["contestants"][0];
    // The pod of the warm-up was the first one.
    assert_eq!((&run["failures"], &run["count"]), (&9.into(), &81.into()));
    assert!(text.contains("fake: 9 of 90 failed: RunPodSandbox"), "{text}");
    assert!(text.contains("the node is full &"), "{text}");
    let page = fs::read_to_string(html).expect("a report");
    assert!(page.contains("9 of 90 failed") && page.contains("the node is full &amp;"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http://localhost"), "a page without scripts");
    assert_eq!(engine.pods(), 0, "pods are removed after a failure, too");
}

#[test]
fn an_interrupted_run_keeps_its_results_and_is_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::start(directory.path(), Behaviour { run_ms: 20, stop_ms: 0, fail_every: 0 });
    let file = directory.path().join("results.jsonl");
    let arguments = ["-n", "1", "--rounds", "40", "--in-flight", "1", "--results", file.to_str().expect("UTF-8")];
    let (one, two) = (engine.named("one"), engine.named("two"));
    let mut command = pods(&[&one, &two], &arguments);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pinion-bench runs");
    let progress = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let mut progress = progress.map(|line| line.expect("UTF-8"));
    assert!(progress.by_ref().any(|line| line.contains("left")), "there is no estimate of the time left");
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    progress.for_each(drop);
    let text = succeed(child.wait_with_output().expect("pinion-bench ends"));
    assert!(text.contains("Interrupted: "), "{text}");
    let turns = |text: &str| text.lines().filter(|line| line.starts_with("{\"turn\"")).count();
    let recorded = fs::read_to_string(&file).expect("results");
    assert!((1..80).contains(&turns(&recorded)), "{}", turns(&recorded));

    // What a crash cuts is measured again.
    fs::write(&file, format!("{recorded}{{\"turn\":{{\"rou")).expect("a cut line");
    let again = pods(&[&one, &two], &arguments).output().expect("pinion-bench runs");
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && error.contains("pinion-bench resume"), "{error}");
    let text = succeed(bench().arg("resume").arg(&file).output().expect("pinion-bench runs"));
    assert!(!text.contains("Interrupted"), "{text}");
    let complete = fs::read_to_string(&file).expect("results");
    assert!(complete.starts_with(&recorded) && turns(&complete) == 80, "{} turns", turns(&complete));
    let compare = bench().arg("compare").args([&file, &file]).output().expect("pinion-bench runs");
    assert!(succeed(compare).contains("(100.0 %)"));
}

#[test]
fn a_run_with_another_engine_is_not_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::start(directory.path(), Behaviour { run_ms: 0, stop_ms: 0, fail_every: 0 });
    let file = directory.path().join("results.jsonl");
    let arguments = ["-n", "1", "--rounds", "2", "--in-flight", "1", "--results", file.to_str().expect("UTF-8")];
    succeed(pods(&[&engine.named("one")], &arguments).output().expect("pinion-bench runs"));
    let complete = fs::read_to_string(&file).expect("results");
    let (head, first_turn) = (complete.lines().next().expect("a head"), complete.lines().nth(1).expect("a turn"));
    let head = head.replace("fake 1.0", "fake 0.9");
    fs::write(&file, format!("{head}\n{first_turn}\n")).expect("results");
    let output = bench().arg("resume").arg(&file).output().expect("pinion-bench runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("one was fake 0.9, and is fake 1.0"), "{error}");
    assert_eq!(fs::read_to_string(&file).expect("results"), format!("{head}\n{first_turn}\n"), "nothing is changed");
}
