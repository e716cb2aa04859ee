//! Tests of the program without a running daemon.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Output, Stdio},
};

fn pinion(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pinion")).args(args).env_remove("PINION_SOCKET").output().expect("pinion starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[test]
fn without_a_daemon_the_error_explains_how_to_start_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("no.sock");
    let socket = socket.to_str().expect("UTF-8");
    for verb in ["ps", "images", "pods", "version", "info"] {
        let output = pinion(&["--socket", socket, verb]);
        assert_eq!(output.status.code(), Some(125), "{verb}");
        assert_eq!(
            stderr(&output),
            format!("pinion: connect to {socket}: no daemon is listening; start one with: pinion serve")
        );
    }
}

#[test]
fn an_invalid_configuration_stops_the_daemon_before_it_creates_anything() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    let state = dir.path().join("state");
    fs::write(&file, format!("state_dir = {state:?}\n[network]\nsubnet = \"10.300.0.0/16\"\n")).expect("written");
    let output = pinion(&["serve", "--config", file.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{}:3: network.subnet: \"10.300.0.0/16\"", file.display());
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert!(!state.exists());
}

#[test]
fn a_missing_monitor_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    fs::write(&file, "monitor = \"/no/such/pinmon\"\n").expect("written");
    let output = pinion(&[
        "serve",
        "--config",
        file.to_str().expect("UTF-8"),
        "--state-dir",
        dir.path().to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/pinmon"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "nothing but the configuration");
}

#[test]
fn the_printed_default_configuration_is_valid() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    fs::write(&file, pinion(&["config", "default"]).stdout).expect("written");
    let file = file.to_str().expect("UTF-8");
    assert_eq!(pinion(&["config", "check", file]).status.code(), Some(0));
    let shown: serde_json::Value =
        serde_json::from_slice(&pinion(&["--json", "config", "show", file]).stdout).expect("JSON");
    assert_eq!(shown["network"]["bridge"], "pinion0");
}

#[test]
fn an_invalid_configuration_is_reported_as_text_and_as_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("c.toml");
    fs::write(&file, "sokcet = \"/x\"\n[log]\nlevel = \"loud\"\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    for format in [["--contract", "999"], ["--understands", "records=999"], ["--understands", "of-the-future=999"]] {
        let check = pinion(&["config", "check", format[0], format[1], file]);
        let is_refused = stderr(&check).contains("not 999") || stderr(&check).contains("does not know");
        assert!(check.status.code() == Some(1) && is_refused, "{}", stderr(&check));
    }
    let text = pinion(&["config", "check", file]);
    assert_eq!((text.status.code(), stderr(&text).lines().count()), (Some(1), 2), "{}", stderr(&text));
    let json = pinion(&["--json", "config", "check", file]);
    let result: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((json.status.code(), &result["valid"]), (Some(1), &serde_json::json!(false)));
    assert_eq!(result["wrong"][0], format!("{file}:1: sokcet: no such key; did you mean socket?"));
    assert!(stderr(&json).is_empty(), "{}", stderr(&json));
}

#[test]
fn a_closed_output_is_not_a_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pinion"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pinion starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = pinion(&["completions", shell]);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("completions"), "{shell}");
    }
}

#[test]
fn every_visible_command_has_a_manual_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = pinion(&["man", directory.path().to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let help = pinion(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 20 && !names.contains(&"man"), "{names:?}");
    for page in names.iter().map(|name| format!("pinion-{name}.1")).chain(["pinion.1".to_owned()]) {
        let text = std::fs::read_to_string(directory.path().join(&page)).expect(&page);
        assert!(text.contains(".TH ") && text.contains("\n.SH SYNOPSIS"), "{page}: {text}");
    }
}

#[test]
fn invalid_arguments_are_refused_before_anything_is_done() {
    for args in [
        &["run", "-p", "x", "busybox"][..],
        &["run", "--memory", "lots", "busybox"],
        &["run", "--name", "../up", "busybox"],
        &["kill", "-s", "NOPE", "x"],
        &["logs", "--since", "yesterday", "x"],
        &["stop", "-t", "-1", "x"],
    ] {
        let output = pinion(args);
        // 2 could be the exit code of a container's program.
        let code = if args[0] == "run" { 125 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn an_unknown_command_is_reported_with_a_suggestion() {
    for (command, message) in [
        ("restart", "pinion: unknown command \"restart\": a container that exited is not started again"),
        ("imagse", "pinion: unknown command \"imagse\"; did you mean pinion images?"),
        ("resett", "pinion: unknown command \"resett\""),
    ] {
        let output = pinion(&[command]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let text = stderr(&output);
        assert!(text.starts_with(message) && !text.contains("pinion reset"), "{text}");
    }
}

#[test]
fn a_daemon_that_fails_to_start_does_not_notify_the_service_manager() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_nonblocking(true).expect("set");
    let output = Command::new(env!("CARGO_BIN_EXE_pinion"))
        .args(["serve", "--config", "/no/such/config.toml"])
        .env("NOTIFY_SOCKET", Path::new(&path))
        .output()
        .expect("pinion starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/config.toml"));
    assert!(socket.recv(&mut [0; 8]).is_err(), "nothing was sent");
}

#[test]
fn doctor_compares_the_kubelet_with_the_configured_cgroup_driver() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (config, kubelet, socket) = (path("config.toml"), path("kubelet.yaml"), path("no.sock"));
    fs::write(&kubelet, "cgroupDriver: cgroupfs\n").expect("written");
    for (driver, names_systemd) in [("cgroupfs", false), ("systemd", true)] {
        fs::write(&config, format!("[cgroup]\ndriver = \"{driver}\"\n")).expect("written");
        let options = ["--socket", &socket, "doctor", "--json", "--config", &config, "--kubelet-config", &kubelet];
        let report: serde_json::Value = serde_json::from_slice(&pinion(&options).stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("findings").iter();
        let found: Vec<_> = findings.filter(|finding| finding["id"] == "cgroup.driver").collect();
        let messages: Vec<&str> = found.iter().filter_map(|finding| finding["message"].as_str()).collect();
        assert_eq!(messages.len(), 1, "{report:#}");
        assert_eq!(messages[0].contains("systemd"), names_systemd, "{driver}: {messages:?}");
    }
}
