//! Broken records, cgroups, pins and directories, and a full tmpfs: they are reported, can be removed, and do not
//! affect other pods.

mod node;

use std::{fs, path::PathBuf, time::Duration};

use node::{Node, exec, exit_code, on_a_node, script, state};
use pod::{ContainerId, ContainerState, Engine, SandboxId, SandboxState};
use testbed::shell;

const SLEEP: &str = "exec sleep 1000";

fn record(node: &Node, kind: &str, id: &impl AsRef<str>, file: &str) -> PathBuf {
    node.config.state_dir.join(kind).join(id.as_ref()).join(file)
}

/// Creates a pod with a running container.
async fn pod(node: &Node, engine: &Engine, name: &str) -> (SandboxId, ContainerId) {
    let pod = engine.run_sandbox(node.sandbox(name)).await.expect("run");
    let id = node.run(engine, &pod, script("c", SLEEP)).await;
    (pod, id)
}

#[test]
fn a_broken_record_is_listed_and_can_be_removed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (good, runs) = pod(&node, &engine, "good").await;
        let (cut, in_cut) = pod(&node, &engine, "cut").await;
        let (newer, in_newer) = pod(&node, &engine, "newer").await;
        let (gone, in_gone) = pod(&node, &engine, "gone").await;
        let status = node.run(&engine, &good, script("status", SLEEP)).await;
        let metadata = node.run(&engine, &good, script("metadata", SLEEP)).await;
        drop(engine);
        fs::write(record(&node, "sandbox", &cut, "metadata.json"), "{\"version\":1,\"val").expect("damage");
        fs::write(record(&node, "sandbox", &newer, "status.json"), "{\"version\":99,\"value\":{}}").expect("damage");
        fs::remove_dir_all(node.config.state_dir.join("sandbox").join(gone.as_str())).expect("damage");
        fs::write(record(&node, "container", &status, "status.json"), "{").expect("damage");
        fs::remove_file(record(&node, "container", &metadata, "metadata.json")).expect("damage");

        for _ in 0..2 {
            let engine = node.open().await;
            assert_eq!((engine.sandboxes().len(), engine.containers().len()), (4, 6));
            assert_eq!(engine.sandbox(&good).expect("good").state, SandboxState::Ready);
            assert_eq!(exec(&engine, &runs, "echo on").await, "on\n");
            for (id, cause) in [(&cut, "EOF"), (&newer, "format Some(99)"), (&gone, "its record is gone")] {
                let sandbox = engine.sandbox(id).expect("listed");
                assert_eq!(sandbox.state, SandboxState::NotReady);
                assert!(sandbox.stage.contains(cause), "{}", sandbox.stage);
            }
            // The containers keep running until they are removed.
            for id in [&in_cut, &in_newer, &in_gone, &status] {
                assert_eq!(state(&engine, id), ContainerState::Running, "{id}");
            }
            let broken = engine.container(&metadata).expect("listed");
            assert_eq!((broken.state, broken.reason.as_str()), (ContainerState::Unknown, "BrokenRecord"));
            assert_eq!(broken.sandbox, good);
        }
        let engine = node.open().await;
        engine.stop_container(&metadata, Duration::ZERO).await.expect("stop");
        engine.remove_container(&metadata).await.expect("remove");
        engine.stop_sandbox(&cut).await.expect("stop");
        // The name can be used again, even if the record of the last pod was broken.
        let again = engine.run_sandbox(node.sandbox("cut")).await.expect("run");
        assert_ne!(again, cut);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_whose_resources_vanished_can_be_removed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (unpinned, one) = pod(&node, &engine, "unpinned").await;
        let (good, two) = pod(&node, &engine, "good").await;
        // Removes the pin of a network namespace.
        shell(&format!("umount -l /run/netns/{unpinned} 2>/dev/null; rm -rf /run/netns/{unpinned}*"));
        // Removes the directory of the logs.
        fs::remove_dir_all(node.logs()).expect("logs");
        engine.stop_container(&two, Duration::ZERO).await.expect("stop");
        // Removes a cgroup whose last process is gone.
        let group = engine.inspect_container(&two).expect("it")["cgroup"].as_str().expect("group").to_owned();
        shell(&format!("for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do rmdir $tree{group} 2>/dev/null; done; true"));
        drop(engine);
        let engine = node.open().await;
        assert_eq!(engine.sandboxes().len(), 2);
        assert_eq!(engine.sandbox(&good).expect("good").state, SandboxState::Ready);
        assert_eq!(state(&engine, &one), ContainerState::Running);
        assert_eq!(engine.list_container_stats(|_, _, _| true).await.len(), 1);
        engine.remove_container(&two).await.expect("remove");
        engine.stop_sandbox(&unpinned).await.expect("stop");
        engine.remove_sandbox(&unpinned).await.expect("remove");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn containers_can_be_stopped_and_removed_on_a_full_tmpfs() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (pod, runs) = pod(&node, &engine, "web").await;
        let waits = engine.create_container(&pod, script("waits", "exit 3")).await.expect("create");
        shell("mount -o remount,size=16m /run; dd if=/dev/zero of=/run/full bs=4k 2>/dev/null; true");
        let error = engine.create_container(&pod, script("more", SLEEP)).await.expect_err("full");
        assert!(error.message.contains("No space left"), "{error}");
        assert!(engine.run_sandbox(node.sandbox("more")).await.is_err());
        assert_eq!((engine.sandboxes().len(), engine.containers().len()), (1, 2));
        engine.start_container(&waits).await.expect("start");
        assert_eq!(exit_code(&engine, &waits).await, Some(3));
        assert_eq!(exec(&engine, &runs, "echo on").await, "on\n");
        engine.stop_container(&runs, Duration::ZERO).await.expect("stop");
        engine.remove_container(&waits).await.expect("remove");
        engine.stop_sandbox(&pod).await.expect("stop");
        engine.remove_sandbox(&pod).await.expect("remove");
        fs::remove_file("/run/full").expect("full");
        node.assert_nothing_left(engine).await;
    });
}
