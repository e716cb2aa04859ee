//! Processes of containers that keep pipes of the daemon locked inside the kernel (splice(2) from an empty socket). A
//! daemon that is killed cannot exit then, but another one starts nevertheless; an upgrade is refused.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use system_tests::{Node, Process, wait_until};

/// Returns a node with the demonstration image, and a volume with the program `holder`.
fn node() -> (Node, String) {
    let node = Node::start();
    node.load_image();
    let program = node.dir.path().join("payload");
    fs::create_dir(&program).expect("a directory");
    testbed::compile("crates/pod/tests/payload/holder.c", &program.join("holder"));
    let volume = format!("{}:/payload:ro", program.display());
    (node, volume)
}

fn client(node: &Node, arguments: &[&str]) -> Child {
    let mut client = node.command(testbed::program("pinion"));
    client.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    client.spawn().expect("nsenter starts")
}

/// Returns the processes with this command line that are inside splice(2).
fn holders(node: &Node, command: &str) -> Vec<Process> {
    let is_in_splice = |process: &Process| {
        let call = fs::read_to_string(process.directory.join("syscall")).unwrap_or_default();
        call.starts_with("275 ") || call.starts_with("76 ") // x86_64, aarch64
    };
    node.processes().into_iter().filter(|process| process.command_line() == command && is_in_splice(process)).collect()
}

/// Waits until a holder with this command line has locked the pipe. One in splice(2) is not enough: it may have been too
/// late, and try again.
fn wait_for_holder(node: &Node, command: &str) {
    let is_holding = |process: &Process| process.command_line() == command && process.name == "holding";
    wait_until("the holder locks the pipe", || {
        node.processes().iter().any(is_holding) && !holders(node, command).is_empty()
    });
}

fn daemon(node: &Node) -> Process {
    let is_daemon = |process: &Process| process.name == "pinion" && process.command_line().contains(" serve ");
    node.processes().into_iter().find(is_daemon).expect("the daemon")
}

/// Kills a daemon that has locked pipes, and checks that another one starts. `commands` are executed in the container
/// `web`, `run` is the program of the container `offender`.
fn kill_daemon_with(commands: &[&str], run: Option<&str>) {
    let (mut node, volume) = node();
    let loops = ["run", "-d", "--name", "web", "-v", &volume, "demo:1", "sh", "-c", "while :; do sleep 0.1; done"];
    node.pinion(&loops).ok();
    node.pinion(&["run", "-d", "--name", "other", "demo:1", "sleep", "1000"]).ok();
    if let Some(command) = run {
        node.pinion(&["run", "-d", "--name", "offender", "-v", &volume, "demo:1", "/payload/holder", command]).ok();
        wait_for_holder(&node, &format!("/payload/holder {command}"));
    }
    let mut clients = Vec::new();
    for command in commands {
        clients.push(client(&node, &["exec", "web", "/payload/holder", command]));
        wait_for_holder(&node, &format!("/payload/holder {command}"));
    }
    node.pinion(&["exec", "other", "true"]).ok();
    let daemon = daemon(&node);
    node.kill(&daemon);
    thread::sleep(Duration::from_millis(500));
    assert!(daemon.directory.exists(), "the daemon exited: the pipe was not locked");
    node.spawn_daemon(&[]);
    wait_until("another daemon is ready", || node.daemon_log().matches("  INFO ready ").count() == 2);
    assert!(node.daemon_log().contains("kept a pipe of the previous daemon locked"), "{}", node.daemon_log());
    node.pinion(&["exec", "other", "true"]).ok();
    // Only the container whose init process held a pipe has exited.
    let running = node.pinion(&["ps"]).ok();
    let names = ["web", "other", "offender"].map(|name| running.contains(name));
    assert_eq!(names, [true, true, false], "{running}");
    for mut client in clients {
        let _ = client.wait();
    }
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_daemon_starts_after_one_killed_with_a_thread_in_a_locked_pipe() {
    kill_daemon_with(&["stdout"], None);
}

#[test]
fn a_daemon_starts_after_a_killed_one_that_cannot_close_a_pipe() {
    kill_daemon_with(&["silent"], None);
}

#[test]
fn a_daemon_starts_after_a_killed_one_that_cannot_close_the_output_of_a_container() {
    kill_daemon_with(&["silent", "stdout"], Some("silent"));
}

#[test]
fn an_upgrade_that_could_not_complete_is_refused() {
    let (node, volume) = node();
    let loops = ["run", "-d", "--name", "web", "-v", &volume, "demo:1", "sh", "-c", "while :; do sleep 0.1; done"];
    node.pinion(&loops).ok();
    let mut client = client(&node, &["exec", "web", "/payload/holder", "silent"]);
    wait_for_holder(&node, "/payload/holder silent");
    let refused = node.pinion(&["upgrade", "daemon"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("keeps a pipe locked"), "{refused:?}");
    node.pinion(&["exec", "web", "true"]).ok();
    client.kill().expect("killed");
    let _ = client.wait();
    for holder in holders(&node, "/payload/holder silent") {
        node.kill(&holder);
    }
    wait_until("the upgrade is accepted", || node.pinion(&["upgrade", "daemon"]).code == Some(0));
    wait_until("the next daemon is ready", || node.daemon_log().matches("  INFO ready ").count() == 2);
    node.remove_all_pods();
    node.end();
}
