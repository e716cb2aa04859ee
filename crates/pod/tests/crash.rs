//! The daemon is killed at every step of a pod's lifecycle. The next one recovers or rolls back everything, and every
//! name can be used again.
#![cfg(feature = "failpoint")]

mod node;

use std::time::Duration;

use node::{Node, container, exit_code, on_a_node};
use pod::Engine;
use testbed::shell;

const FAILPOINTS: [&str; 15] = [
    "sandbox.reserved",
    "sandbox.pinned",
    "sandbox.attached",
    "sandbox.networked",
    "container.recorded",
    "container.prepared",
    "container.made",
    "container.starting",
    "container.started",
    "remove.deleted",
    "remove.discarded",
    "teardown.init",
    "teardown.detached",
    "teardown.unpinned",
    "teardown.released",
];

async fn lifecycle(node: &Node, engine: &Engine) {
    let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
    let id = node.run(engine, &pod, container("c", &["true"])).await;
    assert_eq!(exit_code(engine, &id).await, Some(0));
    engine.stop_container(&id, Duration::ZERO).await.expect("stop");
    engine.remove_container(&id).await.expect("remove");
    engine.stop_sandbox(&pod).await.expect("stop");
    engine.remove_sandbox(&pod).await.expect("remove");
}

#[test]
fn a_daemon_killed_anywhere_leaves_nothing_behind() {
    on_a_node(|node| async move {
        if std::env::var_os("PINION_CRASH_AT").is_some() {
            let engine = node.open().await;
            return lifecycle(&node, &engine).await;
        }
        drop(node.open_with_image().await);
        for failpoint in FAILPOINTS {
            assert!(node.crash(failpoint), "{failpoint} is not reached");
            let engine = node.open().await;
            for sandbox in engine.sandboxes() {
                // A pod that was ready still is; one that was not is gone.
                assert_ne!(sandbox.stage, "reserved", "{failpoint}");
                engine.remove_sandbox(&sandbox.id).await.expect(failpoint);
            }
            lifecycle(&node, &engine).await;
            node.assert_nothing_left(engine).await;
        }
    });
}

#[test]
fn a_daemon_and_its_monitor_killed_anywhere_leave_nothing_behind() {
    on_a_node(|node| async move {
        if std::env::var_os("PINION_CRASH_AT").is_some() {
            let engine = node.open().await;
            return lifecycle(&node, &engine).await;
        }
        drop(node.open_with_image().await);
        for failpoint in FAILPOINTS {
            assert!(node.crash(failpoint), "{failpoint} is not reached");
            // Only processes of this PID namespace are visible.
            shell("kill -9 $(pidof pinmon); while pidof pinmon; do sleep 0.01; done");
            let engine = node.open().await;
            for container in engine.containers() {
                assert!(["running", "ended"].contains(&container.stage.as_str()), "{failpoint}: {}", container.stage);
            }
            for sandbox in engine.sandboxes() {
                engine.remove_sandbox(&sandbox.id).await.expect(failpoint);
            }
            lifecycle(&node, &engine).await;
            node.assert_nothing_left(engine).await;
        }
    });
}

#[test]
fn a_monitor_that_dies_while_a_daemon_recovers_is_replaced() {
    on_a_node(|node| async move {
        if std::env::var_os("PINION_CRASH_AT").is_some() {
            // The monitor dies before the daemon has read a record.
            let engine = node.open().await;
            let stages: Vec<_> =
                engine.containers().into_iter().map(|container| (container.id, container.stage)).collect();
            let [(id, stage)] = &stages[..] else { panic!("{stages:?}") };
            assert_eq!(stage, "running");
            engine.stop_container(id, Duration::from_secs(60)).await.expect("stop");
            assert_eq!(exit_code(&engine, id).await, Some(7));
            return;
        }
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let script = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
        node.run(&engine, &pod, container("c", &["sh", "-c", script])).await;
        drop(engine);
        let monitor = || shell("pidof pinmon");
        let before = monitor();
        assert!(!node.crash("monitor.opened"), "the daemon keeps running");
        assert_ne!(monitor(), before, "the monitor died");
        let engine = node.open().await;
        engine.remove_sandbox(&pod).await.expect("remove");
        node.assert_nothing_left(engine).await;
    });
}
