//! `pinion-bench oci` measures runtimes whose behaviour is known.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// A runtime that sleeps: `run` and `exec` for known times.
const SLEEPING: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit; }
shift 2
case $1,$2 in
  run,--detach) ;;
  run,*) sleep 0.3 ;;
  exec,*) sleep 0.2 ;;
esac
"#;

/// A runtime of which every tenth `run` fails.
const FAILING: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit; }
[ "$3" = run ] || exit 0
echo >> "$0.runs"
[ $(($(wc -l < "$0.runs") % 10)) != 0 ] || { echo "no space left on device" >&2; exit 1; }
"#;

fn runtime(directory: &Path, name: &str, script: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

/// Measures runtimes, and returns the printed report and the rows.
fn measure(directory: &Path, runtimes: &[(&str, &Path)], arguments: &[&str]) -> (String, Vec<Value>) {
    let json = directory.join("summary.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinion-bench"));
    command.args(["oci", "--mounts", "0", "--no-memory", "--floor", "/nonexistent", "--json"]).arg(&json);
    for (name, path) in runtimes {
        command.arg("--runtime").arg(format!("{name}={}", path.display()));
    }
    let output = command.args(arguments).output().expect("pinion-bench runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let summary: Value = serde_json::from_str(&fs::read_to_string(json).expect("a summary")).expect("JSON");
    let rows = summary[0]["rows"].as_array().expect("rows").clone();
    (String::from_utf8_lossy(&output.stdout).into_owned(), rows)
}

fn row<'a>(rows: &'a [Value], metric: &str) -> &'a Value {
    let row = rows.iter().find(|row| row["metric"]["name"] == metric);
    row.unwrap_or_else(|| panic!("no row {metric}"))
}

#[test]
fn known_delays_are_measured_to_five_percent_and_the_order_of_runtimes_does_not_matter() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = runtime(directory.path(), "runtime", SLEEPING);
    let arguments = ["--rounds", "7", "-n", "1", "--others", "1"];
    let (_, rows) = measure(directory.path(), &[("one", &path), ("same", &path)], &arguments);
    for (metric, expected) in [("run true", 300.0), ("exec true", 200.0)] {
        for contestant in row(&rows, metric)["contestants"].as_array().expect("contestants") {
            let measured = contestant["median"]["value"].as_f64().expect("a median");
            assert!((expected..expected * 1.05).contains(&measured), "{metric}: {measured} ms, not {expected}");
        }
        let ratio = row(&rows, metric)["contestants"][1]["first_to_this"]["value"].as_f64().expect("a ratio");
        assert!((0.97..1.03).contains(&ratio), "{metric}, the same runtime under another name: {ratio}");
    }
}

#[test]
fn failures_are_counted_and_the_run_continues() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = runtime(directory.path(), "runtime", FAILING);
    let arguments = ["--rounds", "9", "-n", "10", "--others", "0"];
    let (text, rows) = measure(directory.path(), &[("fake", &path)], &arguments);
    let run = &row(&rows, "run true")["contestants"][0];
    // The first three runs were those of the preparation.
    assert_eq!((&run["failures"], &run["count"]), (&9.into(), &81.into()));
    let sentence = "fake: 9 of 90 failed: run true (the first: exit code 1: no space left on device)";
    assert!(text.contains(sentence), "{text}");
}
