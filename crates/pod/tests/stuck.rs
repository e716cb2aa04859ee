//! No request gets stuck: not when it is repeated, made concurrently or abandoned, nor behind a slow network plugin.

mod node;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use futures_util::future::join_all;
use node::{Node, TIMEOUT, container, exec, exit_code, on_a_node, script, state};
use pod::{ContainerState, Engine, ErrorKind, SandboxId, SandboxState};
use testbed::{shell, wait_until};

/// Configures a network whose plugin waits for a file when it attaches a pod whose name begins with `slow`.
fn slow_network(node: &mut Node) {
    fs::create_dir_all("/run/bin").expect("directory");
    fs::create_dir_all("/run/net.d").expect("directory");
    let script = "#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND >> /run/calls\n\
        case $CNI_COMMAND:$CNI_ARGS in ADD:*K8S_POD_NAME=slow*) while [ ! -e /run/go ]; do sleep 0.05; done;; esac\n\
        [ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.9.0.7/24\"}]}'\n";
    fs::write("/run/bin/wait", script).expect("plugin");
    fs::set_permissions("/run/bin/wait", fs::Permissions::from_mode(0o755)).expect("plugin");
    let list = r#"{"cniVersion": "1.0.0", "name": "slow", "plugins": [{"type": "wait"}]}"#;
    fs::write("/run/net.d/10-slow.conflist", list).expect("list");
    node.config.network.cni_bin_dirs = vec!["/run/bin".into()];
}

fn calls(command: &str) -> usize {
    fs::read_to_string("/run/calls").unwrap_or_default().lines().filter(|line| *line == command).count()
}

/// Waits until the plugin runs and returns the id of the pod that is being created.
async fn pod_in_creation(engine: &Engine) -> SandboxId {
    wait_until("the plugin runs", TIMEOUT, || calls("ADD") > 0 && engine.sandboxes().iter().any(|pod| pod.creating));
    engine.sandboxes().into_iter().find(|pod| pod.creating).expect("a pod is being created").id
}

#[test]
fn a_hundred_retries_behind_a_slow_plugin_get_one_pod() {
    on_a_node(|mut node| async move {
        let engine = node.open_with_image().await;
        let other = engine.run_sandbox(node.sandbox("other")).await.expect("run");
        let runs = node.run(&engine, &other, script("c", "exec sleep 1000")).await;
        slow_network(&mut node);
        drop(engine);
        let engine = node.open().await;
        for round in 0..100 {
            // The client's deadline expires; it disconnects and tries again.
            let outcome =
                tokio::time::timeout(Duration::from_millis(20), engine.run_sandbox(node.sandbox("slow"))).await;
            assert!(outcome.is_err(), "{round}: {outcome:?}");
        }
        let id = pod_in_creation(&engine).await;
        assert_eq!((engine.sandboxes().len(), calls("ADD")), (2, 1));
        let why = engine.why("slow").expect("why");
        let plugin = pod::Wait::NetworkPlugin { name: "wait".to_owned(), command: "ADD".to_owned() };
        assert_eq!(why[0].waits_for, Some(plugin), "{why:?}");
        // No other pod or container is delayed.
        assert_eq!(exec(&engine, &runs, "echo on").await, "on\n");
        let quick = engine.run_sandbox(node.sandbox("quick")).await.expect("run");
        engine.stop_sandbox(&quick).await.expect("stop");
        engine.stop_container(&runs, Duration::ZERO).await.expect("stop");
        engine.stop_sandbox(&other).await.expect("stop");
        engine.remove_sandbox(&other).await.expect("remove");
        assert!(engine.status().await.network.ready);

        let waiting = engine.run_sandbox(node.sandbox("slow"));
        let (created, ()) = tokio::join!(waiting, async { fs::write("/run/go", "").expect("go") });
        assert_eq!(created.expect("created"), id);
        assert_eq!(engine.run_sandbox(node.sandbox("slow")).await.expect("existing"), id);
        let timeline = engine.why(id.as_str()).expect("why").remove(0).timeline;
        assert!(timeline.iter().any(|stage| stage.part && stage.name == "CNI plugin wait ADD"), "{timeline:?}");
        drop(engine);
        let engine = node.open().await;
        let timeline = engine.why(id.as_str()).expect("why").remove(0).timeline;
        assert!(timeline.iter().any(|stage| stage.name == "CNI plugin wait ADD"), "it is in the stored record");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_behind_a_slow_plugin_can_be_stopped_and_removed() {
    on_a_node(|mut node| async move {
        slow_network(&mut node);
        let engine = node.open_with_image().await;
        for stop in [true, false] {
            let _ = fs::remove_file("/run/calls");
            let creation = {
                let (engine, config) = (engine.clone(), node.sandbox("slow"));
                tokio::spawn(async move { engine.run_sandbox(config).await })
            };
            let id = pod_in_creation(&engine).await;
            if stop {
                // A hundred concurrent requests are one operation.
                let stops = (0..100).map(|_| engine.stop_sandbox(&id));
                join_all(stops).await.into_iter().for_each(|stopped| stopped.expect("stop"));
            } else {
                engine.remove_sandbox(&id).await.expect("remove");
            }
            let error = creation.await.expect("task").expect_err("rolled back");
            assert!(error.message.contains("stopped"), "{error}");
            assert_eq!((engine.sandboxes().len(), calls("ADD"), calls("DEL")), (0, 1, 1));
            assert!(!shell("ps -eo args").contains("/run/bin/wait"), "the plugin");
            let why = engine.why("slow").expect("the failure is remembered");
            assert_eq!(why[0].state, pod::ObjectState::NotCreated);
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_plugin_left_over_from_a_dead_daemon_is_killed_by_the_next() {
    on_a_node(|mut node| async move {
        slow_network(&mut node);
        if std::env::var_os("PINION_TEST_DAEMON").is_some() {
            let engine = node.open().await;
            let config = node.sandbox("slow");
            tokio::spawn(async move { engine.run_sandbox(config).await });
            wait_until("the plugin runs", TIMEOUT, || calls("ADD") == 1);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("kill");
        }
        drop(node.open_with_image().await);
        assert!(node.crash("nowhere"), "the daemon killed itself");
        let engine = node.open().await;
        wait_until("the pod is rolled back", TIMEOUT, || engine.sandboxes().is_empty());
        assert!(!shell("ps -eo args").contains("/run/bin/wait"), "the plugin");
        assert_eq!(calls("DEL"), 1);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn concurrent_operations_are_one() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pods = join_all((0..20).map(|_| engine.run_sandbox(node.sandbox("web")))).await;
        let pod = pods[0].clone().expect("run");
        assert!(pods.into_iter().all(|other| other.expect("run") == pod));
        let create = || engine.create_container(&pod, script("c", "exec sleep 1000"));
        let ids = join_all((0..20).map(|_| create())).await;
        let id = ids[0].clone().expect("create");
        assert!(ids.into_iter().all(|other| other.expect("create") == id));
        join_all((0..20).map(|_| engine.start_container(&id))).await.into_iter().for_each(|s| s.expect("start"));
        // The same requests after the operation completed.
        engine.start_container(&id).await.expect("it is running");
        assert_eq!(create().await.expect("it exists"), id);
        let stops = (0..20u32).map(|n| engine.stop_container(&id, Duration::from_millis(u64::from(n))));
        join_all(stops).await.into_iter().for_each(|stopped| stopped.expect("stop"));
        join_all((0..20).map(|_| engine.remove_container(&id))).await.into_iter().for_each(|r| r.expect("remove"));
        let (stop, remove) = tokio::join!(engine.stop_sandbox(&pod), engine.remove_sandbox(&pod));
        stop.and(remove).expect("both");
        assert!(engine.sandboxes().is_empty());
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_name_is_never_reserved() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        // A container that exited or was never started does not block its name. A running one does, with an error.
        let exited = node.run(&engine, &pod, container("c", &["true"])).await;
        assert_eq!(exit_code(&engine, &exited).await, Some(0));
        let created = engine.create_container(&pod, script("c", "exec sleep 1000")).await.expect("next to it");
        let other = engine.create_container(&pod, script("c", "exec sleep 2000")).await.expect("in its place");
        assert!(engine.container(&created).is_err() && other != created);
        engine.start_container(&other).await.expect("start");
        let error = engine.create_container(&pod, script("c", "exec sleep 3000")).await.expect_err("it is running");
        assert_eq!(error.kind, ErrorKind::AlreadyExists, "{error}");
        // A stopped pod stays until it is removed, next to the new one.
        engine.stop_sandbox(&pod).await.expect("stop");
        let again = engine.run_sandbox(node.sandbox("web")).await.expect("again");
        assert_ne!(again, pod);
        assert_eq!(engine.sandbox(&pod).expect("old").state, SandboxState::NotReady);
        drop(engine);
        let engine = node.open().await;
        assert_eq!(engine.run_sandbox(node.sandbox("web")).await.expect("existing"), again);
        engine.remove_sandbox(&pod).await.expect("remove");
        assert_eq!(engine.run_sandbox(node.sandbox("web")).await.expect("existing"), again);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn requests_of_callers_that_give_up_are_completed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        for microseconds in (0..20).map(|n| 400 * n) {
            let patience = Duration::from_micros(microseconds);
            let _ = tokio::time::timeout(patience, engine.run_sandbox(node.sandbox("web"))).await;
            let pod = engine.run_sandbox(node.sandbox("web")).await.expect("shared");
            let config = || script("c", "exec sleep 1000");
            let _ = tokio::time::timeout(patience, engine.create_container(&pod, config())).await;
            let id = engine.create_container(&pod, config()).await.expect("shared");
            let _ = tokio::time::timeout(patience, engine.start_container(&id)).await;
            engine.start_container(&id).await.expect("shared");
            assert_eq!(state(&engine, &id), ContainerState::Running);
            assert_eq!((engine.sandboxes().len(), engine.containers().len()), (1, 1));
            let _ = tokio::time::timeout(patience, engine.stop_container(&id, TIMEOUT)).await;
            engine.stop_container(&id, Duration::ZERO).await.expect("stop");
            let _ = tokio::time::timeout(patience, engine.remove_container(&id)).await;
            let _ = tokio::time::timeout(patience, engine.stop_sandbox(&pod)).await;
            let _ = tokio::time::timeout(patience, engine.remove_sandbox(&pod)).await;
            engine.remove_sandbox(&pod).await.expect("remove");
        }
        assert!(Path::new("/run/pinion/sandbox").read_dir().expect("directory").next().is_none());
        node.assert_nothing_left(engine).await;
    });
}
