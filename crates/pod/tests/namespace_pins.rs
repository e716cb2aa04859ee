//! Pins of the IPC, UTS and user namespaces of pods, for those who enter them from outside.

mod node;

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use node::{TIMEOUT, monitor_pid, on_a_node, script};
use pod::{Engine, SandboxConfig, SandboxId, SharedMode, UserMappings, oci};
use testbed::{shell, wait_until};

const PUBLIC: &str = "/run/public";

/// Returns the namespaces of a pod that are pinned, by their kind and number.
fn pinned(public: &str, pod: &SandboxId) -> Vec<(&'static str, u64)> {
    let kinds = [("ipc", "ipcns"), ("uts", "utsns"), ("user", "userns")];
    let number = |directory: &str| Some(fs::metadata(Path::new(public).join(directory).join(pod.as_str())).ok()?.ino());
    kinds.into_iter().filter_map(|(kind, directory)| Some((kind, number(directory)?))).collect()
}

/// Returns the namespaces of these kinds that a process of the pod is in.
fn inside(pid: u32, kinds: &[&'static str]) -> Vec<(&'static str, u64)> {
    let number = |kind: &str| fs::metadata(format!("/proc/{pid}/ns/{kind}")).expect("a namespace").ino();
    kinds.iter().map(|kind| (*kind, number(kind))).collect()
}

async fn pod(node: &node::Node, engine: &Engine, name: &str) -> (SandboxId, u32) {
    let pod = engine.run_sandbox(node.sandbox(name)).await.expect("run");
    let container = node.run(engine, &pod, script(name, "exec sleep 1000")).await;
    let pid = engine.container(&container).expect("the container").pid.expect("its pid");
    (pod, pid)
}

#[test]
fn namespaces_are_visible_until_the_pod_is_stopped() {
    on_a_node(|mut node| async move {
        node.config.namespaces_dir = Some(PUBLIC.into());
        let engine = node.open_with_image().await;
        let (web, pid) = pod(&node, &engine, "web").await;
        assert_eq!(pinned(PUBLIC, &web), inside(pid, &["ipc", "uts"]));
        let entered = shell(&format!("nsenter --ipc={PUBLIC}/ipcns/{web} --uts={PUBLIC}/utsns/{web} hostname"));
        assert_eq!(entered, "web\n");
        // Only what the pod has of its own.
        let shared = SandboxConfig { network: SharedMode::Node, ipc: SharedMode::Node, ..node.sandbox("node") };
        let shared = engine.run_sandbox(shared).await.expect("run");
        assert_eq!(pinned(PUBLIC, &shared), []);
        let map = vec![oci::IdMapping { container_id: 0, host_id: 655_360, size: 65_536 }];
        let maps = UserMappings { uids: map.clone(), gids: map };
        let user = SandboxConfig { user_namespace: Some(maps), ..node.sandbox("user") };
        let user = engine.run_sandbox(user).await.expect("run");
        assert_eq!(pinned(PUBLIC, &user).len(), 3);

        engine.stop_sandbox(&web).await.expect("stop");
        assert_eq!(pinned(PUBLIC, &web), []);
        engine.remove_sandbox(&web).await.expect("remove");
        for left in [shared, user] {
            engine.remove_sandbox(&left).await.expect("remove");
        }
        assert_eq!(
            shell(&format!("find {PUBLIC} {}/namespaces ! -type d ! -name .lock", node.config.state_dir.display()))
                .lines()
                .count(),
            1
        );
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn pins_follow_the_configuration_and_what_is_created_again() {
    on_a_node(|mut node| async move {
        let engine = node.open_with_image().await;
        let (web, pid) = pod(&node, &engine, "web").await;
        let empty = engine.run_sandbox(node.sandbox("empty")).await.expect("run");
        drop(engine);
        // A pod of the time before it was configured.
        node.config.namespaces_dir = Some(PUBLIC.into());
        let engine = node.open().await;
        assert_eq!(pinned(PUBLIC, &web), inside(pid, &["ipc", "uts"]));
        assert_eq!(pinned(PUBLIC, &empty).len(), 2);
        // Without daemon and monitor the namespaces of the empty pod are held by the pins only, and are created again.
        let monitor = monitor_pid(&engine).await.expect("pid");
        let before = pinned(PUBLIC, &empty);
        drop(engine);
        shell(&format!("kill -9 {monitor}"));
        wait_until("the monitor is gone", TIMEOUT, || !Path::new(&format!("/proc/{monitor}/root/")).exists());
        let engine = node.open().await;
        assert_eq!(pinned(PUBLIC, &web), inside(pid, &["ipc", "uts"]));
        let container = node.run(&engine, &empty, script("late", "exec sleep 1000")).await;
        let late = engine.container(&container).expect("the container").pid.expect("its pid");
        assert_eq!(pinned(PUBLIC, &empty), inside(late, &["ipc", "uts"]));
        assert_ne!(pinned(PUBLIC, &empty), before);
        drop(engine);
        // Another directory, then none.
        node.config.namespaces_dir = Some("/run/elsewhere".into());
        let engine = node.open().await;
        assert_eq!((pinned(PUBLIC, &web), pinned("/run/elsewhere", &web).len()), (Vec::new(), 2));
        drop(engine);
        node.config.namespaces_dir = None;
        let engine = node.open().await;
        assert_eq!(pinned("/run/elsewhere", &web), []);
        node.assert_nothing_left(engine).await;
    });
}
