//! Pods in virtual machines: the daemon, and the monitor with it, is killed at every step. The next daemon recovers or rolls
//! back everything, the request can be repeated or undone, and nothing is left behind. Guests are emulated if this machine
//! cannot run them. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).
#![cfg(feature = "failpoint")]

mod node;

use std::{fs, path::Path, time::Duration};

use node::{Node, TIMEOUT, container, exit_code, on_a_node};
use pod::{Engine, Error, SandboxId, SandboxState, VmHandler};
use testbed::{checkout, shell, wait_until};

/// Set for a process that is to be killed at a failpoint.
const CRASH: &str = "PINION_CRASH_AT";
/// Steps of virtual machines.
const VM: &str = "vm.";
/// Directory below the data directory with the templates of guests.
const TEMPLATES: &str = "vm-templates";
/// Steps of the first pod of a node, which becomes the template.
const FIRST: [&str; 2] = ["vm.template.begun", "vm.template.published"];
/// Steps that a pod in a virtual machine does not reach.
const OTHERS: [&str; 5] = ["shim.", "connect.", "disconnect.", "checkpoint.", "restore."];

/// Returns the failpoints in the source of the engine.
fn failpoints(is_selected: fn(&str) -> bool) -> Vec<String> {
    let (mut found, mut directories) = (Vec::new(), vec![checkout("crates/pod/src")]);
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a file");
            let calls = text.split("failpoint::reach(\"").skip(1);
            found.extend(calls.map(|call| call.split('"').next().expect("a name").to_owned()));
        }
    }
    found.retain(|name| is_selected(name));
    found.sort();
    found
}

fn with_virtual_machines(node: &mut Node) {
    let image = std::env::var_os("PINION_VM_IMAGE").expect("PINION_VM_IMAGE is the directory of an image");
    let servers = ["/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"];
    let server = servers.into_iter().find(|path| Path::new(path).exists()).expect("virtiofsd");
    node.config.vm_handlers = vec![VmHandler {
        name: "vm".into(),
        hypervisor: format!("/usr/bin/qemu-system-{}", std::env::consts::ARCH).into(),
        file_server: server.into(),
        image: Some(image.into()),
        memory: 256 << 20,
        memory_max: None,
        cpus: 1,
        cpus_max: None,
        allow_emulation: true,
        template: true,
        boot_timeout: Duration::from_secs(60),
        timeout: TIMEOUT,
        silence_timeout: Duration::from_secs(120),
    }];
}

async fn run_pod(node: &Node, engine: &Engine) -> Result<SandboxId, Error> {
    let mut sandbox = node.sandbox("web");
    sandbox.runtime_handler = "vm".into();
    // The futures of a build without optimizations are large: on the heap, they leave room on the stack of the test.
    Box::pin(engine.run_sandbox(sandbox)).await
}

async fn run_container(engine: &Engine, pod: &SandboxId) -> Result<(), Error> {
    let id = Box::pin(engine.create_container(pod, container("c", &["sh", "-c", "exit 7"]))).await?;
    engine.start_container(&id).await?;
    assert_eq!(exit_code(engine, &id).await, Some(7));
    engine.stop_container(&id, Duration::ZERO).await?;
    engine.remove_container(&id).await
}

/// Removes the containers that are left and repeats what was interrupted, in the pod that was interrupted if that is ready.
async fn repeat(node: &Node, engine: &Engine, failpoint: &str) {
    for container in engine.containers() {
        engine.stop_container(&container.id, Duration::ZERO).await.expect(failpoint);
        engine.remove_container(&container.id).await.expect(failpoint);
    }
    let is_kept = engine.sandboxes().iter().any(|sandbox| sandbox.state == SandboxState::Ready);
    if is_kept && !failpoint.starts_with("teardown.") {
        Box::pin(run_container(engine, &engine.sandboxes()[0].id)).await.expect(failpoint);
    }
    for sandbox in engine.sandboxes() {
        assert_ne!(sandbox.stage, "reserved", "{failpoint}");
        engine.stop_sandbox(&sandbox.id).await.expect(failpoint);
        engine.remove_sandbox(&sandbox.id).await.expect(failpoint);
    }
    if !is_kept {
        let pod = run_pod(node, engine).await.expect("the name can be used again");
        Box::pin(run_container(engine, &pod)).await.expect(failpoint);
        engine.remove_sandbox(&pod).await.expect(failpoint);
    }
}

fn assert_no_processes(when: &str) {
    // Only processes of this PID namespace are visible. Those that lost daemon and monitor are reaped by its init process, which is
    // the test.
    let list = || shell("ps -eo stat=,comm= | grep -v '^Z' | grep -E ' (qemu|virtiofsd)' || true");
    let ended = format!("{when}: the virtual machine has ended");
    wait_until(&ended, TIMEOUT, || list().trim().is_empty());
}

async fn crash_everywhere(mut node: Node, is_selected: fn(&str) -> bool, and_the_monitor: bool) {
    with_virtual_machines(&mut node);
    if std::env::var_os(CRASH).is_some() {
        let engine = node.open().await;
        let pod = run_pod(&node, &engine).await.expect("run");
        Box::pin(run_container(&engine, &pod)).await.expect("run a container");
        engine.stop_sandbox(&pod).await.expect("stop");
        return engine.remove_sandbox(&pod).await.expect("remove");
    }
    drop(node.open_with_image().await);
    let failpoints = failpoints(is_selected);
    assert!(failpoints.len() >= 8, "{failpoints:?}");
    for failpoint in failpoints {
        let begin = std::time::Instant::now();
        if FIRST.contains(&failpoint.as_str()) {
            fs::remove_dir_all(node.config.data_dir.join(TEMPLATES)).expect("the templates");
        }
        assert!(node.crash(&failpoint), "{failpoint} is not reached");
        if and_the_monitor {
            shell("kill -9 $(pidof pinmon); while pidof pinmon; do sleep 0.01; done");
        }
        let engine = node.open().await;
        Box::pin(repeat(&node, &engine, &failpoint)).await;
        assert_no_processes(&failpoint);
        node.assert_nothing_left(engine).await;
        eprintln!("{failpoint}: {} ms", begin.elapsed().as_millis());
    }
}

#[test]
fn a_daemon_killed_at_any_step_of_a_virtual_machine_leaves_nothing_behind() {
    on_a_node(|node| Box::pin(crash_everywhere(node, |name| name.starts_with(VM), false)));
}

#[test]
fn a_daemon_and_its_monitor_killed_at_any_step_of_a_virtual_machine_leave_nothing_behind() {
    on_a_node(|node| Box::pin(crash_everywhere(node, |name| name.starts_with(VM), true)));
}

#[test]
fn a_daemon_killed_at_any_other_step_of_a_pod_in_a_virtual_machine_leaves_nothing_behind() {
    let is_other = |name: &str| !name.starts_with(VM) && !OTHERS.iter().any(|other| name.starts_with(other));
    on_a_node(move |node| Box::pin(crash_everywhere(node, is_other, false)));
}
