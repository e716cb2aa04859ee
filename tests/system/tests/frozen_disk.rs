//! A data disk that hangs: operations that do not need it work, and the others complete when it responds again.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use system_tests::{Node, Options, Registry, wait_until};

/// A bound for failing tests under load: an operation that needs the disk waits for as long as it is frozen.
const QUICK_MAX: Duration = Duration::from_secs(12);

/// A guard that keeps the file system of the data directory frozen.
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
        let outcome = self.0.run("fsfreeze", &["--unfreeze", &self.1]);
        if !thread::panicking() {
            outcome.ok();
        }
    }
}

fn node_on_ext4() -> Node {
    let node = Node::new(Options::default());
    let (image, data) = (node.dir.path().join("data.img"), node.dir.path().join("data"));
    fs::File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("a backing file");
    let (image, data) = (image.to_str().expect("UTF-8"), data.to_str().expect("UTF-8"));
    node.run("mkfs.ext4", &["-q", image]).ok();
    // The mount is in the mount namespace of the node and is removed with it.
    node.run("mount", &["-o", "loop", image, data]).ok();
    node
}

/// Loads an image with one small file.
fn load_small_image(node: &Node, name: &str) {
    let dir = node.dir.path().join("small");
    fs::create_dir(&dir).expect("a directory");
    let path = |name: &str| dir.join(name).display().to_string();
    fs::write(path("file"), name).expect("a file");
    node.run("tar", &["-cf", &path("layer.tar"), "-C", &path(""), "file"]).ok();
    let sum = node.run("sha256sum", &[&path("layer.tar")]).ok();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let diff_id = format!("sha256:{}", sum.split_whitespace().next().expect("a digest"));
    let config =
        json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
    fs::write(path("config.json"), config.to_string()).expect("a file");
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(path("manifest.json"), manifest.to_string()).expect("a file");
    let names = ["manifest.json", "config.json", "layer.tar"];
    node.run("tar", &[&["-cf", &path("image.tar"), "-C", &path("")], &names[..]].concat()).ok();
    node.pinion(&["load", "-i", &path("image.tar")]).ok();
}

/// Starts `pinion` in the background.
fn spawn(node: &Node, args: &[&str]) -> Child {
    let pinion = std::path::PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN: run `make test`"));
    let mut command = node.command(pinion.join("pinion"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nsenter starts")
}

#[test]
fn a_frozen_data_disk_delays_only_operations_that_need_it() {
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
        spawn(&node, &["pull", "-q", "127.0.0.1:5000/again:1"]),
        spawn(&node, &["rmi", "docker.io/library/small:1"]),
    ];
    // More containers than the disk has threads; each of them needs a writable layer.
    let names: Vec<String> = (0..20).map(|number| format!("new{number}")).collect();
    waiting.extend(names.iter().map(|name| spawn(&node, &["run", "-d", "--name", name, image, "sleep", "1000"])));
    thread::sleep(Duration::from_secs(2));
    let quick: [(&str, &[&str]); 6] = [
        ("ps", &["ps", "-a"]),
        ("pods", &["pods"]),
        ("images", &["images"]),
        ("info", &["info"]),
        ("exec", &["exec", "web", "true"]),
        ("stop", &["stop", "-t", "1", "victim"]),
    ];
    for (operation, args) in quick {
        let start = Instant::now();
        node.pinion(args).ok();
        let duration = start.elapsed();
        println!("{operation}: {duration:?}");
        assert!(duration < QUICK_MAX, "{operation} took {duration:?}");
    }
    assert!(waiting[..2].iter_mut().all(|child| child.try_wait().expect("wait").is_none()), "they wait for the disk");
    drop(frozen);
    for child in &mut waiting[..2] {
        assert!(child.wait().expect("wait").success(), "it succeeds when the disk responds");
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
