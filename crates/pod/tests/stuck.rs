//! No request gets stuck: repeated, at once, given up, behind a plugin of the network that sleeps.

mod node;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use futures_util::future::join_all;
use node::{Node, PATIENCE, container, end, eventually, exec, on_a_node, script, shell, state};
use pod::{ContainerState, Engine, ErrorKind, SandboxState};

/// A network whose plugin waits until it is let go, when it attaches a pod whose name begins with `slow`.
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

async fn begun(engine: &Engine) -> String {
    eventually("the plugin runs", || calls("ADD") > 0 && engine.sandboxes().iter().any(|pod| pod.making));
    engine.sandboxes().into_iter().find(|pod| pod.making).expect("it is being made").id
}

#[test]
fn a_hundred_retries_behind_a_slow_plugin_get_one_pod() {
    on_a_node("a_hundred_retries_behind_a_slow_plugin_get_one_pod", |mut node| async move {
        let engine = node.open_with_image().await;
        let other = engine.run_sandbox(node.sandbox("other")).await.expect("run");
        let runs = node.run(&engine, &other, script("c", "exec sleep 1000")).await;
        slow_network(&mut node);
        drop(engine);
        let engine = node.open().await;
        for round in 0..100 {
            // The client's deadline; it hangs up and asks again.
            let asked = tokio::time::timeout(Duration::from_millis(20), engine.run_sandbox(node.sandbox("slow"))).await;
            assert!(asked.is_err(), "{round}: {asked:?}");
        }
        let id = begun(&engine).await;
        assert_eq!((engine.sandboxes().len(), calls("ADD")), (2, 1));
        let why = engine.why("slow").expect("why");
        assert_eq!(why[0].waits_for.as_deref(), Some("CNI plugin wait ADD, which runs"), "{why:?}");
        // Nobody else waits.
        assert_eq!(exec(&engine, &runs, "echo on").await, "on\n");
        let quick = engine.run_sandbox(node.sandbox("quick")).await.expect("run");
        engine.stop_sandbox(&quick).await.expect("stop");
        engine.stop_container(&runs, Duration::ZERO).await.expect("stop");
        engine.stop_sandbox(&other).await.expect("stop");
        engine.remove_sandbox(&other).await.expect("remove");
        assert!(engine.status().await.network.ready);

        let waiting = engine.run_sandbox(node.sandbox("slow"));
        let (ended, ()) = tokio::join!(waiting, async { fs::write("/run/go", "").expect("go") });
        assert_eq!(ended.expect("made"), id);
        assert_eq!(engine.run_sandbox(node.sandbox("slow")).await.expect("known"), id);
        let timeline = engine.why(&id).expect("why").remove(0).timeline;
        assert!(timeline.iter().any(|stage| stage.part && stage.name == "CNI plugin wait ADD"), "{timeline:?}");
        drop(engine);
        let engine = node.open().await;
        let timeline = engine.why(&id).expect("why").remove(0).timeline;
        assert!(timeline.iter().any(|stage| stage.name == "CNI plugin wait ADD"), "it is in the record");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_pod_behind_a_slow_plugin_can_be_stopped_and_removed() {
    on_a_node("a_pod_behind_a_slow_plugin_can_be_stopped_and_removed", |mut node| async move {
        slow_network(&mut node);
        let engine = node.open_with_image().await;
        for stop in [true, false] {
            let _ = fs::remove_file("/run/calls");
            let making = {
                let (engine, config) = (engine.clone(), node.sandbox("slow"));
                tokio::spawn(async move { engine.run_sandbox(config).await })
            };
            let id = begun(&engine).await;
            if stop {
                // A hundred at once are one.
                let stops = (0..100).map(|_| engine.stop_sandbox(&id));
                join_all(stops).await.into_iter().for_each(|stopped| stopped.expect("stop"));
            } else {
                engine.remove_sandbox(&id).await.expect("remove");
            }
            let error = making.await.expect("task").expect_err("taken back");
            assert!(error.message.contains("stopped"), "{error}");
            assert_eq!((engine.sandboxes().len(), calls("ADD"), calls("DEL")), (0, 1, 1));
            assert!(!shell("ps -eo args").contains("/run/bin/wait"), "the plugin");
            let why = engine.why("slow").expect("it is remembered");
            assert_eq!(why[0].state, "could not be made");
        }
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_plugin_that_a_dead_daemon_left_is_ended_by_the_next() {
    const NAME: &str = "a_plugin_that_a_dead_daemon_left_is_ended_by_the_next";
    on_a_node(NAME, |mut node| async move {
        slow_network(&mut node);
        if std::env::var_os("PINION_TEST_DAEMON").is_some() {
            let engine = node.open().await;
            let config = node.sandbox("slow");
            tokio::spawn(async move { engine.run_sandbox(config).await });
            eventually("the plugin runs", || calls("ADD") == 1);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("kill");
        }
        drop(node.open_with_image().await);
        assert!(node.crash(NAME, "nowhere"), "it killed itself");
        let engine = node.open().await;
        eventually("it is taken back", || engine.sandboxes().is_empty());
        assert!(!shell("ps -eo args").contains("/run/bin/wait"), "the plugin");
        assert_eq!(calls("DEL"), 1);
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn operations_at_once_are_one() {
    on_a_node("operations_at_once_are_one", |node| async move {
        let engine = node.open_with_image().await;
        let pods = join_all((0..20).map(|_| engine.run_sandbox(node.sandbox("web")))).await;
        let pod = pods[0].clone().expect("run");
        assert!(pods.into_iter().all(|other| other.expect("run") == pod));
        let create = || engine.create_container(&pod, script("c", "exec sleep 1000"));
        let ids = join_all((0..20).map(|_| create())).await;
        let id = ids[0].clone().expect("create");
        assert!(ids.into_iter().all(|other| other.expect("create") == id));
        join_all((0..20).map(|_| engine.start_container(&id))).await.into_iter().for_each(|s| s.expect("start"));
        // Again, when it is done.
        engine.start_container(&id).await.expect("it runs");
        assert_eq!(create().await.expect("it is there"), id);
        let stops = (0..20u32).map(|n| engine.stop_container(&id, Duration::from_millis(u64::from(n))));
        join_all(stops).await.into_iter().for_each(|stopped| stopped.expect("stop"));
        join_all((0..20).map(|_| engine.remove_container(&id))).await.into_iter().for_each(|r| r.expect("remove"));
        let (stop, remove) = tokio::join!(engine.stop_sandbox(&pod), engine.remove_sandbox(&pod));
        stop.and(remove).expect("both");
        assert!(engine.sandboxes().is_empty());
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_name_is_never_reserved() {
    on_a_node("a_name_is_never_reserved", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        // One that ended, and one that never ran, are no obstacle; one that runs is, and says so.
        let ended = node.run(&engine, &pod, container("c", &["true"])).await;
        assert_eq!(end(&engine, &ended).await, Some(0));
        let waits = engine.create_container(&pod, script("c", "exec sleep 1000")).await.expect("beside it");
        let other = engine.create_container(&pod, script("c", "exec sleep 2000")).await.expect("in its place");
        assert!(engine.container(&waits).is_err() && other != waits);
        engine.start_container(&other).await.expect("start");
        let error = engine.create_container(&pod, script("c", "exec sleep 3000")).await.expect_err("it runs");
        assert_eq!(error.kind, ErrorKind::AlreadyExists, "{error}");
        // A pod that was stopped stays until it is removed, beside the new one.
        engine.stop_sandbox(&pod).await.expect("stop");
        let again = engine.run_sandbox(node.sandbox("web")).await.expect("again");
        assert_ne!(again, pod);
        assert_eq!(engine.sandbox(&pod).expect("old").state, SandboxState::NotReady);
        drop(engine);
        let engine = node.open().await;
        assert_eq!(engine.run_sandbox(node.sandbox("web")).await.expect("known"), again);
        engine.remove_sandbox(&pod).await.expect("remove");
        assert_eq!(engine.run_sandbox(node.sandbox("web")).await.expect("known"), again);
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn callers_that_give_up_leave_what_they_asked_for_whole() {
    on_a_node("callers_that_give_up_leave_what_they_asked_for_whole", |node| async move {
        let engine = node.open_with_image().await;
        for microseconds in (0..20).map(|n| 400 * n) {
            let patience = Duration::from_micros(microseconds);
            let _ = tokio::time::timeout(patience, engine.run_sandbox(node.sandbox("web"))).await;
            let pod = engine.run_sandbox(node.sandbox("web")).await.expect("joined");
            let config = || script("c", "exec sleep 1000");
            let _ = tokio::time::timeout(patience, engine.create_container(&pod, config())).await;
            let id = engine.create_container(&pod, config()).await.expect("joined");
            let _ = tokio::time::timeout(patience, engine.start_container(&id)).await;
            engine.start_container(&id).await.expect("joined");
            assert_eq!(state(&engine, &id), ContainerState::Running);
            assert_eq!((engine.sandboxes().len(), engine.containers().len()), (1, 1));
            let _ = tokio::time::timeout(patience, engine.stop_container(&id, PATIENCE)).await;
            engine.stop_container(&id, Duration::ZERO).await.expect("stop");
            let _ = tokio::time::timeout(patience, engine.remove_container(&id)).await;
            let _ = tokio::time::timeout(patience, engine.stop_sandbox(&pod)).await;
            let _ = tokio::time::timeout(patience, engine.remove_sandbox(&pod)).await;
            engine.remove_sandbox(&pod).await.expect("remove");
        }
        assert!(Path::new("/run/pinion/sandbox").read_dir().expect("directory").next().is_none());
        node.nothing_is_left(engine).await;
    });
}
