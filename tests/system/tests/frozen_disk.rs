//! A data disk that answers nobody: what does not need it goes on, and what does ends when it answers again.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use system_tests::{Node, Options, Registry, wait_until};

/// A bound for a broken run under load, not a measure: what waits for the disk waits for as long as it is frozen.
const SOON: Duration = Duration::from_secs(12);

/// The data directory on an ext4 of its own, frozen from now until this is dropped.
struct Frozen<'a>(&'a Node, String);

impl<'a> Frozen<'a> {
    fn new(node: &'a Node) -> Self {
        let data = node.dir.path().join("data").display().to_string();
        node.run("fsfreeze", &["--freeze", &data]).ok();
        Self(node, data)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thawed = self.0.run("fsfreeze", &["--unfreeze", &self.1]);
        if !thread::panicking() {
            thawed.ok();
        }
    }
}

fn node_on_ext4() -> Node {
    let node = Node::cold(Options::default());
    let (image, data) = (node.dir.path().join("data.img"), node.dir.path().join("data"));
    fs::File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("a backing file");
    let (image, data) = (image.to_str().expect("UTF-8"), data.to_str().expect("UTF-8"));
    node.run("mkfs.ext4", &["-q", image]).ok();
    // In the node's mount namespace: it goes with it.
    node.run("mount", &["-o", "loop", image, data]).ok();
    node
}

/// Loads an image of one small file.
fn load_small_image(node: &Node, name: &str) {
    let dir = node.dir.path().join("small");
    fs::create_dir(&dir).expect("a directory");
    let at = |name: &str| dir.join(name).display().to_string();
    fs::write(at("file"), name).expect("a file");
    node.run("tar", &["-cf", &at("layer.tar"), "-C", &at(""), "file"]).ok();
    let sum = node.run("sha256sum", &[&at("layer.tar")]).ok();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let diff_id = format!("sha256:{}", sum.split_whitespace().next().expect("a digest"));
    let config =
        json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
    fs::write(at("config.json"), config.to_string()).expect("a file");
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(at("manifest.json"), manifest.to_string()).expect("a file");
    let names = ["manifest.json", "config.json", "layer.tar"];
    node.run("tar", &[&["-cf", &at("image.tar"), "-C", &at("")], &names[..]].concat()).ok();
    node.pinion(&["load", "-i", &at("image.tar")]).ok();
}

/// Starts `pinion` with these arguments and does not wait for it.
fn begin(node: &Node, args: &[&str]) -> Child {
    let pinion = std::path::PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN: run `make test`"));
    let mut command = node.command(pinion.join("pinion"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nsenter starts")
}

#[test]
fn a_frozen_data_disk_stops_nothing_that_does_not_need_it() {
    let mut node = node_on_ext4();
    let _registry = Registry::start(&node);
    node.start_daemon();
    let image = "127.0.0.1:5000/demo:1";
    node.pinion(&["pull", "-q", image]).ok();
    load_small_image(&node, "docker.io/library/small:1");
    _registry.push(&node, "again", "1");
    for name in ["web", "victim"] {
        node.pinion(&["run", "-d", "--name", name, image, "sleep", "1000"]).ok();
    }
    let frozen = Frozen::new(&node);
    let mut waiting = vec![
        begin(&node, &["pull", "-q", "127.0.0.1:5000/again:1"]),
        begin(&node, &["rmi", "docker.io/library/small:1"]),
    ];
    // More than the disk has threads for, and they need a writable layer each.
    let names: Vec<String> = (0..20).map(|at| format!("new{at}")).collect();
    waiting.extend(names.iter().map(|name| begin(&node, &["run", "-d", "--name", name, image, "sleep", "1000"])));
    thread::sleep(Duration::from_secs(2));
    let quick: [(&str, &[&str]); 6] = [
        ("ps", &["ps", "-a"]),
        ("pods", &["pods"]),
        ("images", &["images"]),
        ("info", &["info"]),
        ("exec", &["exec", "web", "true"]),
        ("stop", &["stop", "-t", "1", "victim"]),
    ];
    for (what, args) in quick {
        let began = Instant::now();
        node.pinion(args).ok();
        let took = began.elapsed();
        println!("{what}: {took:?}");
        assert!(took < SOON, "{what} took {took:?}");
    }
    assert!(waiting[..2].iter_mut().all(|child| child.try_wait().expect("wait").is_none()), "they wait for the disk");
    drop(frozen);
    for child in &mut waiting[..2] {
        assert!(child.wait().expect("wait").success(), "it ends well when the disk answers");
    }
    waiting[2..].iter_mut().for_each(|child| drop(child.wait()));
    assert!(node.pinion(&["images"]).ok().contains("again"));
    assert!(!node.pinion(&["images"]).ok().contains("small"));
    for name in names.iter().map(String::as_str).chain(["web", "victim"]) {
        let _ = node.pinion(&["rm", "-f", name]);
    }
    wait_until("everything is removed", || node.pinion(&["ps", "-aq"]).ok().is_empty());
    node.end();
}
