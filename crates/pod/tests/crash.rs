//! The daemon is killed at every step of a pod's lifecycle. The next one recovers or rolls back everything, and every
//! name can be used again.
#![cfg(feature = "failpoint")]

mod node;

use std::time::Duration;

use node::{Node, TIMEOUT, container, exit_code, on_a_node};
use pod::{Engine, NetworkChoice, NetworkRequest};
use testbed::{shell, wait_until};

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

/// Failpoints of a connection, and whether the pod is connected afterwards.
const CONNECTION_FAILPOINTS: [(&str, bool); 3] =
    [("connect.attached", false), ("connect.recorded", true), ("disconnect.recorded", false)];

#[test]
fn a_daemon_killed_while_it_connects_a_pod_leaves_the_pod_as_its_record_says() {
    on_a_node(|node| async move {
        let choice = || NetworkChoice { network: "shop".into(), ..NetworkChoice::default() };
        let engine = node.open().await;
        if std::env::var_os("PINION_CRASH_AT").is_some() {
            let pod = engine.sandboxes().remove(0).id;
            engine.connect_network(&pod, choice()).await.expect("connect");
            engine.disconnect_network(&pod, "shop".into(), false).await.expect("disconnect");
            return;
        }
        engine.create_network(NetworkRequest { name: "shop".into(), ..Default::default() }).await.expect("create");
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        drop(engine);
        let links = || shell(&format!("nsenter --net=/run/netns/{pod} ip -o link | cut -d: -f2 | cut -d@ -f1"));
        for (failpoint, is_connected) in CONNECTION_FAILPOINTS {
            assert!(node.crash(failpoint), "{failpoint} is not reached");
            let engine = node.open().await;
            let secondary = engine.inspect_sandbox(&pod).expect("the pod")["attachment"]["secondary"].clone();
            let recorded = secondary.as_array().is_some_and(|all| !all.is_empty());
            assert_eq!(recorded, is_connected, "{failpoint}: {secondary}");
            wait_until("the links are those on record", TIMEOUT, || links().contains("eth1") == is_connected);
            let endpoints = engine.network("shop").expect("the network").1;
            assert_eq!(!endpoints.is_empty(), is_connected, "{failpoint}: {endpoints:?}");
            engine.disconnect_network(&pod, "shop".into(), true).await.expect(failpoint);
            assert!(!links().contains("eth1"), "{failpoint}");
            drop(engine);
        }
        let engine = node.open().await;
        engine.remove_sandbox(&pod).await.expect("remove");
        engine.remove_network("shop").await.expect("remove");
        assert!(!shell("ip -o link").contains("br-"));
        node.assert_nothing_left(engine).await;
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
