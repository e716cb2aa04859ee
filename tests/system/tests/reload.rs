//! A changed configuration is applied to the running daemon, as a whole or not at all.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::Value;
use system_tests::{Node, wait_until};

fn drop_in(node: &Node, name: &str, text: &str) -> PathBuf {
    let directory = PathBuf::from(format!("{}.d", node.config().display()));
    fs::create_dir_all(&directory).expect("a directory");
    // Editors and configuration tools write another file in the same directory and rename it, too.
    fs::write(directory.join("new"), text).expect("written");
    fs::rename(directory.join("new"), directory.join(name)).expect("renamed");
    directory.join(name)
}

fn configuration_info(node: &Node) -> Value {
    node.pinion(&["--json", "info"]).json()["daemon"]["configuration"].clone()
}

fn running_config(node: &Node) -> Value {
    node.pinion(&["--json", "config", "show", "--running"]).json()
}

#[test]
fn an_invalid_file_changes_nothing_and_a_corrected_one_is_applied() {
    let node = Node::start();
    let path = drop_in(&node, "10-log.toml", "[log]\nlevel = \"debug\"\n[network]\npool = 3\n");
    wait_until("the file is applied", || running_config(&node)["log"]["level"] == "debug");
    assert_eq!(running_config(&node)["network"]["pool"], 3);
    let shown = node.pinion(&["config", "show", "--running", "--origin"]).ok();
    let line = shown.lines().find(|line| line.starts_with("pool = 3")).expect("the pool");
    assert!(line.ends_with(&format!("# {}:4", path.display())), "{line}");
    // A valid value and an invalid one in the same file: neither is applied.
    drop_in(&node, "20-invalid.toml", "[log]\nlevel = \"warn\"\n[network]\nsubnet = \"10.300.0.0/16\"\n");
    wait_until("the file is refused", || configuration_info(&node)["refused"].is_string());
    let error = configuration_info(&node)["refused"].as_str().expect("an error").to_owned();
    assert!(error.contains("20-invalid.toml:4: network.subnet: \"10.300.0.0/16\""), "{error}");
    assert_eq!(running_config(&node)["log"]["level"], "debug");
    let refused = node.pinion(&["config", "reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("20-invalid.toml:4: network.subnet"), "{refused:?}");
    drop_in(&node, "20-invalid.toml", "[log]\nlevel = \"warn\"\n");
    wait_until("the corrected file is applied", || running_config(&node)["log"]["level"] == "warn");
    assert!(configuration_info(&node)["refused"].is_null());
    assert_eq!(node.pinion(&["config", "reload"]).ok(), "nothing changed");
    node.end();
}

#[test]
fn keys_that_require_a_restart_are_named_and_nothing_is_changed() {
    let node = Node::start();
    drop_in(&node, "10.toml", "cgroup_parent = \"/other\"\n[log]\nlevel = \"debug\"\n[network]\nbridge = \"other0\"\n");
    let refused = node.pinion(&["config", "reload"]);
    let error = "require a restart of the daemon: cgroup_parent, network.bridge; nothing was changed";
    assert!(refused.code == Some(1) && refused.stderr.contains(error), "{refused:?}");
    assert_eq!(running_config(&node)["log"]["level"], "info");
    assert!(node.crictl(&["info"]).stdout.contains("require a restart"), "the verbose status contains the error");
    node.end();
}

#[test]
fn changed_links_and_sighup_reload_the_configuration() {
    let node = Node::start();
    node.run("kill", &["-HUP", &node.process("pinion").pid.to_string()]).ok();
    wait_until("the signal is handled", || node.daemon_log().contains("SIGHUP"));
    let (one, two) = (node.dir.path().join("one"), node.dir.path().join("two"));
    for (directory, level) in [(&one, "debug"), (&two, "warn")] {
        fs::create_dir(directory).expect("a directory");
        fs::write(directory.join("log.toml"), format!("[log]\nlevel = \"{level}\"\n")).expect("written");
    }
    // The kubelet's layout of a ConfigMap: the file is a link through another link, which is replaced atomically.
    let directory = PathBuf::from(format!("{}.d", node.config().display()));
    fs::create_dir_all(&directory).expect("a directory");
    symlink(&one, directory.join("..data")).expect("linked");
    symlink("..data/log.toml", directory.join("log.toml")).expect("linked");
    wait_until("the link is followed", || running_config(&node)["log"]["level"] == "debug");
    symlink(&two, directory.join("..new")).expect("linked");
    fs::rename(directory.join("..new"), directory.join("..data")).expect("replaced");
    wait_until("the replaced link is followed", || running_config(&node)["log"]["level"] == "warn");
    // A ConfigMap that is mounted elsewhere, with a drop-in that links to it.
    let map = node.dir.path().join("map");
    fs::create_dir(&map).expect("a directory");
    symlink(&one, map.join("..data")).expect("linked");
    symlink("..data/log.toml", map.join("log.toml")).expect("linked");
    symlink(map.join("log.toml"), directory.join("zz.toml")).expect("linked");
    wait_until("links to other directories are followed", || running_config(&node)["log"]["level"] == "debug");
    symlink(&two, map.join("..new")).expect("linked");
    fs::rename(map.join("..new"), map.join("..data")).expect("replaced");
    wait_until("a replaced link in the path is noticed", || running_config(&node)["log"]["level"] == "warn");
    node.end();
}
