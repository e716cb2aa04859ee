//! The file system of some pods' logs hangs: other pods, and restarts of the programs, are not delayed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use system_tests::{ContainerSpec, Node, PodSpec, wait_until};

/// Prints numbered lines until a file exists, then exits with code 7.
const COUNTER: &str = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; done; echo total $i; exit 7";
const SIZE: u64 = 256 << 20;

/// An ext4 file system on a loop device, mounted in the node.
struct Disk {
    init_pid: i32,
    device: String,
    path: PathBuf,
}

impl Disk {
    fn mount(node: &Node, path: PathBuf) -> Self {
        let image = node.dir.path().join("hung.image");
        fs::File::create(&image).and_then(|file| file.set_len(SIZE)).expect("an image");
        let image = text(&image);
        node.run("mkfs.ext4", &["-q", "-F", image]).ok();
        let device = node.run("losetup", &["--find", "--show", image]).ok();
        let disk = Self { init_pid: node.init_pid(), device, path };
        fs::create_dir_all(&disk.path).expect("a directory");
        node.run("mount", &[&disk.device, text(&disk.path)]).ok();
        disk
    }

    /// Runs a program in the mount namespace of the node but outside of its PID namespace, so that it check even if the
    /// processes of the node hang or are killed.
    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = std::process::Command::new("nsenter");
        command.args(["--target", &self.init_pid.to_string(), "--mount", "--", program]).args(arguments);
        command.output().is_ok_and(|output| output.status.success())
    }

    fn freeze(&self) {
        assert!(self.run("fsfreeze", &["--freeze", text(&self.path)]));
    }

    fn thaw(&self) {
        assert!(self.run("fsfreeze", &["--unfreeze", text(&self.path)]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The file system may be frozen or not.
        self.run("fsfreeze", &["--unfreeze", text(&self.path)]);
        self.run("umount", &["--lazy", text(&self.path)]);
        let _ = std::process::Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn counter(node: &Node, name: &str, logs: PathBuf) -> String {
    let mut pod = PodSpec::named(node, name);
    pod.0["log_directory"] = serde_json::json!(logs);
    let pod_id = node.run_pod(&pod);
    node.run_container(&pod_id, &pod, &ContainerSpec::new("counter", "demo:1", &["sh", "-c", COUNTER]))
}

/// Stops the counter and checks that the log contains each line once and in order.
fn finish(node: &Node, id: &str, logs: &Path) {
    // The container may exit, and kill this command, before it returns.
    node.crictl(&["exec", "-s", id, "touch", "/tmp/stop"]);
    wait_until("the exit of the container is reported", || {
        node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    assert_eq!(node.crictl(&["inspect", id]).json()["status"]["exitCode"], 7);
    let log = node.run("cat", &[text(&logs.join("counter.log"))]).ok();
    let lines: Vec<&str> = log.lines().map(|line| line.splitn(4, ' ').nth(3).expect("four fields")).collect();
    let (total, lines) = lines.split_last().expect("lines");
    assert_eq!(*total, format!("total {}", lines.len()), "lines were lost or duplicated");
    for (n, line) in (1..).zip(lines) {
        assert_eq!(*line, format!("line {n}"), "a line is lost or duplicated");
    }
}

fn wait_for_hung_writer(node: &Node) {
    wait_until("a log writer hangs", || {
        node.processes().iter().any(|process| process.name == "pinmon-log" && process.state == 'D')
    });
}

#[test]
fn a_hung_log_delays_nothing_else_even_after_kills() {
    let mut node = Node::start();
    node.load_image();
    let disk = Disk::mount(&node, node.logs().join("disk"));
    let (hung_logs, logs) = (disk.path.join("hung"), node.logs().join("bystander"));
    let hung = counter(&node, "hung", hung_logs.clone());
    let bystander = counter(&node, "bystander", logs.clone());
    disk.freeze();
    wait_for_hung_writer(&node);
    let check = |node: &Node| {
        for id in [&hung, &bystander] {
            assert_eq!(node.crictl(&["exec", "-s", id, "echo", "alive"]).ok(), "alive");
        }
        assert_eq!(node.crictl(&["ps", "-q"]).ok().lines().count(), 2);
    };
    check(&node);
    node.kill_monitor();
    wait_until("exec works again", || node.crictl(&["exec", "-s", &hung, "echo", "alive"]).stdout.trim() == "alive");
    check(&node);
    let [monitor, daemon] = [node.process("pinmon"), node.process("pinion")].map(|process| process.pid.to_string());
    node.run("kill", &["-KILL", &monitor, &daemon]).ok();
    node.reap_daemon();
    node.start_daemon();
    check(&node);
    node.kill_daemon();
    node.start_daemon();
    check(&node);
    std::thread::sleep(Duration::from_millis(200));
    disk.thaw();
    finish(&node, &hung, &hung_logs);
    finish(&node, &bystander, &logs);
    node.remove_all_pods();
    wait_until("killed log writers are gone", || {
        node.processes().iter().filter(|process| process.name == "pinmon-log" && process.state != 'Z').count() <= 2
    });
    drop(disk);
    node.end();
}
