//! Checkpoints and restores of pods in virtual machines: the daemon is killed at every step. The next one continues a pod that was
//! being saved, and removes one that was being restored. Needs what `tests/external/vm-checkpoint` provides.
#![cfg(feature = "failpoint")]

mod node;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use node::{Node, TIMEOUT, container, on_a_node};
use pod::{ContainerId, Engine, Error, PodCheckpoint, PodRestore, RestoredPod, SandboxConfig, VmHandler};
use testbed::{shell, wait_until};

/// Set for a process that is to be killed at a failpoint.
const CRASH: &str = "PINION_CRASH_AT";
const CHECKPOINT: [&str; 5] =
    ["checkpoint.recorded", "checkpoint.frozen", "checkpoint.paused", "checkpoint.state", "checkpoint.layers"];
const RESTORE: [&str; 8] = [
    "sandbox.networked",
    "restore.file_server",
    "restore.container",
    "restore.hypervisor",
    "restore.plugged",
    "restore.state",
    "restore.loaded",
    "restore.ready",
];
/// Prints without end.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";
const LIMIT: Duration = Duration::from_secs(120);

fn with_virtual_machines(node: &mut Node) {
    let image = std::env::var_os("PINION_VM_IMAGE").expect("PINION_VM_IMAGE is the directory of an image");
    node.config.vm_handlers = vec![VmHandler {
        name: "vm".into(),
        hypervisor: format!("/usr/bin/qemu-system-{}", std::env::consts::ARCH).into(),
        file_server: "/usr/libexec/virtiofsd".into(),
        image: Some(image.into()),
        memory: 256 << 20,
        memory_max: None,
        cpus: 1,
        cpus_max: None,
        allow_emulation: true,
        template: false,
        boot_timeout: Duration::from_secs(60),
        timeout: TIMEOUT,
        silence_timeout: LIMIT,
    }];
}

fn sandbox(node: &Node) -> SandboxConfig {
    SandboxConfig { runtime_handler: "vm".into(), ..node.sandbox("web") }
}

async fn checkpoint(engine: &Engine, id: &ContainerId, output: &Path) -> Result<(), Error> {
    let request = PodCheckpoint { output: output.to_owned(), containers: vec![id.to_string()], timeout: LIMIT };
    Box::pin(engine.checkpoint_sandbox(&engine.sandboxes()[0].id, request)).await
}

async fn restore(node: &Node, engine: &Engine, checkpoint: &Path) -> Result<RestoredPod, Error> {
    let containers = vec![container("c", &["sh", "-c", COUNT])];
    let request = PodRestore { checkpoint: checkpoint.to_owned(), config: sandbox(node), containers, timeout: LIMIT };
    Box::pin(engine.restore_sandbox(request)).await
}

fn empty(directory: &Path) -> PathBuf {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir(directory).expect("a directory");
    directory.to_owned()
}

#[test]
fn a_daemon_killed_at_any_step_of_a_checkpoint_or_restore_leaves_a_whole_pod_or_none() {
    on_a_node(|node| Box::pin(crash_everywhere(node)));
}

/// Does a step in a process of its own, whose connections to the virtual machine end with it.
async fn step(node: &Node, step: &str) {
    let (saved, partial) = (node.dir.join("saved"), node.dir.join("partial"));
    let engine = node.open().await;
    match step {
        "step.run" => {
            let pod = Box::pin(engine.run_sandbox(sandbox(node))).await.expect("run");
            let config = container("c", &["sh", "-c", COUNT]);
            let id = Box::pin(engine.create_container(&pod, config)).await.expect("create");
            engine.start_container(&id).await.expect("start");
        }
        "step.continues" => {
            let length = node.log("c").len();
            wait_until("the pod continues", LIMIT, || node.log("c").len() > length);
        }
        "step.save" => {
            let id = engine.containers()[0].id.clone();
            checkpoint(&engine, &id, &empty(&saved)).await.expect("checkpoint");
            engine.remove_sandbox(&engine.sandboxes()[0].id).await.expect("remove");
        }
        "step.remove" => engine.remove_sandbox(&engine.sandboxes()[0].id).await.expect("remove"),
        "step.gone" => {
            let is_gone = || engine.sandboxes().is_empty() && engine.containers().is_empty();
            wait_until("the pod is removed", LIMIT, is_gone);
            let list = || shell("ps -eo stat=,comm= | grep -v '^Z' | grep -E ' (qemu|virtiofsd)' || true");
            wait_until("its processes have ended", LIMIT, || list().trim().is_empty());
            node.assert_nothing_left(engine).await;
        }
        "step.restore" => {
            let restored = restore(node, &engine, &saved).await.expect("restore");
            let length = node.log("c").len();
            engine.start_container(&restored.containers[0].1).await.expect("start");
            wait_until("the pod continues", LIMIT, || node.log("c").len() > length);
        }
        failpoint if CHECKPOINT.contains(&failpoint) => {
            let id = engine.containers()[0].id.clone();
            checkpoint(&engine, &id, &empty(&partial)).await.expect("checkpoint");
        }
        _ => drop(restore(node, &engine, &saved).await.expect("restore")),
    }
}

async fn crash_everywhere(mut node: Node) {
    with_virtual_machines(&mut node);
    if let Ok(name) = std::env::var(CRASH) {
        return step(&node, &name).await;
    }
    drop(node.open_with_image().await);
    let complete = |step: &str| assert!(!node.crash(step), "{step}");
    complete("step.run");
    for failpoint in CHECKPOINT {
        assert!(node.crash(failpoint), "{failpoint} is not reached");
        complete("step.continues");
        eprintln!("{failpoint}: continued");
    }
    complete("step.save");
    for failpoint in RESTORE {
        assert!(node.crash(failpoint), "{failpoint} is not reached");
        if failpoint == "restore.ready" {
            complete("step.remove");
        }
        complete("step.gone");
        eprintln!("{failpoint}: nothing is left");
    }
    complete("step.restore");
    complete("step.remove");
    complete("step.gone");
}
