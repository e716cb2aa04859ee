//! Which events reach which plugins.

use std::time::{Duration, Instant};

use pod::oci;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    node::{self, TIMEOUT, exit_code, on_a_node, script},
    plugin::{Reply, neutral},
    setup::{Events, add, enable, logger, take},
};

#[test]
fn events_after_the_fact_reach_the_plugins_after_one_that_refuses_them() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        add(&node, &engine, ("10", "refusing"), |method, argument| match method {
            _ if ["Post", "Stop", "Remove"].iter().any(|verb| method.starts_with(verb)) => Reply::Refuse(2, "no"),
            _ => neutral(method, argument),
        })
        .await;
        let events = Events::default();
        add(&node, &engine, ("20", "logger"), logger(&events)).await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let update = oci::Resources { pids: Some(oci::Pids { limit: Some(50) }), ..oci::Resources::default() };
        engine.update_container(&id, update.clone(), None).await.expect("update");
        engine.update_sandbox(&pod, None, Some(update)).await.expect("update");
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        engine.remove_container(&id).await.expect("remove");
        engine.remove_sandbox(&pod).await.expect("remove");
        let seen = take(&events);
        let container = ["Create", "PostCreate", "Start", "PostStart", "Update", "PostUpdate", "Stop", "Remove"];
        for event in container.map(|event| format!("{event}Container p/c")) {
            assert_eq!(seen.iter().filter(|seen| **seen == event).count(), 1, "{event} in {seen:?}");
        }
        let pod = ["Run", "Update", "PostUpdate", "Stop", "Remove"];
        for event in pod.map(|event| format!("{event}PodSandbox p")) {
            assert_eq!(seen.iter().filter(|seen| **seen == event).count(), 1, "{event} in {seen:?}");
        }
        assert_eq!(engine.plugins().len(), 2, "a refusal is not a failure");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_plugin_is_synchronized_with_containers_that_did_not_exit() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        node.run(&engine, &pod, script("runs", "exec sleep 1000")).await;
        engine.create_container(&pod, script("created", "exec sleep 1000")).await.expect("create");
        let exited = node.run(&engine, &pod, script("exited", "exit 3")).await;
        assert_eq!(exit_code(&engine, &exited).await, Some(3));
        let events = Events::default();
        add(&node, &engine, ("10", "logger"), logger(&events)).await;
        assert_eq!(take(&events), ["Synchronize 1 pods, 2 containers"]);
        // As in containerd, its removal is announced nevertheless.
        engine.remove_container(&exited).await.expect("remove");
        assert_eq!(take(&events), ["RemoveContainer p/exited"]);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_removal_is_announced_to_a_plugin_that_joined_while_it_was_going_on() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exit 0")).await;
        exit_code(&engine, &id).await;
        // The removal waits for the monitor, which does not answer.
        let monitor = node::monitor_pid(&engine).await.and_then(|pid| Pid::from_raw(pid as i32)).expect("a monitor");
        kill_process(monitor, Signal::STOP).expect("stopped");
        let removal = {
            let (engine, id) = (engine.clone(), id.clone());
            tokio::spawn(async move { engine.remove_container(&id).await })
        };
        let begin = Instant::now();
        while engine.container(&id).expect("known").stage != "remove its cgroup and writable layer" {
            assert!(begin.elapsed() < TIMEOUT, "the removal does not begin");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let events = Events::default();
        add(&node, &engine, ("10", "logger"), logger(&events)).await;
        assert_eq!(take(&events), ["Synchronize 1 pods, 0 containers"]);
        assert!(!removal.is_finished());
        kill_process(monitor, Signal::CONT).expect("continued");
        removal.await.expect("no panic").expect("removed");
        assert_eq!(take(&events), ["RemoveContainer p/c"]);
        node.assert_nothing_left(engine).await;
    });
}
