//! The configuration is taken up while the daemon runs: wholly, or not at all.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::Value;
use system_tests::{Node, wait_until};

fn drop_in(node: &Node, name: &str, text: &str) -> PathBuf {
    let directory = PathBuf::from(format!("{}.d", node.config().display()));
    fs::create_dir_all(&directory).expect("a directory");
    // As editors and configuration tools do: beside, then renamed.
    fs::write(directory.join("fresh"), text).expect("written");
    fs::rename(directory.join("fresh"), directory.join(name)).expect("renamed");
    directory.join(name)
}

fn about(node: &Node) -> Value {
    node.pinion(&["--json", "info"]).json()["daemon"]["configuration"].clone()
}

fn running(node: &Node) -> Value {
    node.pinion(&["--json", "config", "show", "--running"]).json()
}

#[test]
fn a_broken_file_changes_nothing_and_a_mended_one_is_taken_up() {
    let node = Node::start();
    let path = drop_in(&node, "10-log.toml", "[log]\nlevel = \"debug\"\n[network]\npool = 3\n");
    wait_until("the file is seen", || running(&node)["log"]["level"] == "debug");
    assert_eq!(running(&node)["network"]["pool"], 3);
    let shown = node.pinion(&["config", "show", "--running", "--origin"]).ok();
    let line = shown.lines().find(|line| line.starts_with("pool = 3")).expect("the pool");
    assert!(line.ends_with(&format!("# {}:4", path.display())), "{line}");
    // A good value beside a wrong one: neither is taken up.
    drop_in(&node, "20-wrong.toml", "[log]\nlevel = \"warn\"\n[network]\nsubnet = \"10.300.0.0/16\"\n");
    wait_until("the file is refused", || about(&node)["refused"].is_string());
    let why = about(&node)["refused"].as_str().expect("a reason").to_owned();
    assert!(why.contains("20-wrong.toml:4: network.subnet: \"10.300.0.0/16\""), "{why}");
    assert_eq!(running(&node)["log"]["level"], "debug");
    let refused = node.pinion(&["config", "reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("20-wrong.toml:4: network.subnet"), "{refused:?}");
    drop_in(&node, "20-wrong.toml", "[log]\nlevel = \"warn\"\n");
    wait_until("the mended file is taken up", || running(&node)["log"]["level"] == "warn");
    assert!(about(&node)["refused"].is_null());
    assert_eq!(node.pinion(&["config", "reload"]).ok(), "nothing changed");
    node.end();
}

#[test]
fn what_needs_a_restart_is_named_and_nothing_else_is_done() {
    let node = Node::start();
    drop_in(&node, "10.toml", "cgroup_parent = \"/other\"\n[log]\nlevel = \"debug\"\n[network]\nbridge = \"other0\"\n");
    let refused = node.pinion(&["config", "reload"]);
    let why = "cgroup_parent, network.bridge need a restart of the daemon; nothing was changed";
    assert!(refused.code == Some(1) && refused.stderr.contains(why), "{refused:?}");
    assert_eq!(running(&node)["log"]["level"], "info");
    assert!(node.crictl(&["info"]).stdout.contains("need a restart"), "the verbose status tells it");
    node.end();
}

#[test]
fn links_and_hangups_count() {
    let node = Node::start();
    node.run("kill", &["-HUP", &node.process("pinion").pid.to_string()]).ok();
    wait_until("the signal is heard", || node.daemon_log().contains("SIGHUP"));
    let (one, two) = (node.dir.path().join("one"), node.dir.path().join("two"));
    for (directory, level) in [(&one, "debug"), (&two, "warn")] {
        fs::create_dir(directory).expect("a directory");
        fs::write(directory.join("log.toml"), format!("[log]\nlevel = \"{level}\"\n")).expect("written");
    }
    // As kubelet keeps what comes from a ConfigMap: a link to a link that is exchanged.
    let directory = PathBuf::from(format!("{}.d", node.config().display()));
    fs::create_dir_all(&directory).expect("a directory");
    symlink(&one, directory.join("..data")).expect("linked");
    symlink("..data/log.toml", directory.join("log.toml")).expect("linked");
    wait_until("the link is followed", || running(&node)["log"]["level"] == "debug");
    symlink(&two, directory.join("..fresh")).expect("linked");
    fs::rename(directory.join("..fresh"), directory.join("..data")).expect("exchanged");
    wait_until("the exchanged link is followed", || running(&node)["log"]["level"] == "warn");
    // As a ConfigMap is mounted elsewhere, and a drop-in leads there.
    let map = node.dir.path().join("map");
    fs::create_dir(&map).expect("a directory");
    symlink(&one, map.join("..data")).expect("linked");
    symlink("..data/log.toml", map.join("log.toml")).expect("linked");
    symlink(map.join("log.toml"), directory.join("zz.toml")).expect("linked");
    wait_until("links over directories are followed", || running(&node)["log"]["level"] == "debug");
    symlink(&two, map.join("..fresh")).expect("linked");
    fs::rename(map.join("..fresh"), map.join("..data")).expect("exchanged");
    wait_until("what is exchanged on the way is seen", || running(&node)["log"]["level"] == "warn");
    node.end();
}
