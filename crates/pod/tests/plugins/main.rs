//! NRI plugins and real containers.

mod adjustments;
mod events;
#[path = "../node/mod.rs"]
mod node;
#[path = "../../../nri/tests/plugins/plugin.rs"]
mod plugin;
mod setup;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use node::{Node, container, exec, exit_code, on_a_node, script, state};
use nri::messages::{
    Adjustment, AdjustmentLinux, ContainerUpdate, CreateResponse, Device, Eviction, Hook, Hooks, Int, IoPriority,
    KeyValue, Memory, Mount, Namespace, Pids, Resources, Rlimit, Seccomp, SyscallRule, UInt, UpdateContainers,
    UpdateLinux,
};
use plugin::{Plugin, Reply, neutral};
use pod::{ContainerState, ErrorKind, oci};
use prost::Message;
use setup::{Events, REQUEST, add, enable, logger, respond, text};

/// An adjustment of each kind.
fn everything(node: &Node) -> Adjustment {
    let variable = |key: &str, value: &str| KeyValue { key: text(key), value: text(value) };
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| Mount {
        destination: text(destination),
        r#type: text(kind),
        source: text(source),
        options: options.iter().map(|option| text(option)).collect(),
    };
    let marker = node.dir.join("hook-ran").display().to_string();
    let hook = Hook { path: text("/bin/touch"), args: vec![text("touch"), marker], ..Hook::default() };
    let number = |value| Some(UInt { value });
    let device = Device {
        path: text("/dev/plugged"),
        r#type: text("c"),
        major: 1,
        minor: 3,
        file_mode: number(0o640),
        uid: number(7),
        gid: number(8),
    };
    let rule = |action: &str, names: &[&str]| SyscallRule {
        names: names.iter().map(|name| text(name)).collect(),
        action: text(action),
        errno_ret: number(88),
        ..SyscallRule::default()
    };
    let seccomp = Seccomp {
        default_action: text("SCMP_ACT_ALLOW"),
        syscalls: vec![rule("SCMP_ACT_ERRNO", &["mkdir", "mkdirat"])],
        ..Seccomp::default()
    };
    let linux = AdjustmentLinux {
        devices: vec![device],
        resources: Some(Resources { pids: Some(Pids { limit: 77 }), ..Resources::default() }),
        oom_score_adj: Some(Int { value: 321 }),
        io_priority: Some(IoPriority { class: 2, priority: 6 }),
        seccomp_policy: Some(seccomp),
        namespaces: vec![Namespace { r#type: text("ipc"), path: String::new() }],
        sysctl: [(text("net.ipv4.ip_forward"), text("1")), (text("kernel.shm_rmid_forced"), text("1"))].into(),
        ..AdjustmentLinux::default()
    };
    Adjustment {
        annotations: [(text("adjusted"), text("yes"))].into(),
        mounts: vec![
            mount("/plugged", "bind", &node.dir.display().to_string(), &["rbind", "ro"]),
            mount("/scratch", "tmpfs", "tmpfs", &["size=64k"]),
            mount("-/dev/mqueue", "", "", &[]),
        ],
        env: vec![variable("PLUGGED", "a=b"), variable("-OWN", "")],
        hooks: Some(Hooks { create_runtime: vec![hook], ..Hooks::default() }),
        linux: Some(linux),
        rlimits: vec![Rlimit { r#type: text("RLIMIT_NOFILE"), soft: 555, hard: 555 }],
        ..Adjustment::default()
    }
}

#[test]
fn every_adjustment_of_a_plugin_is_in_the_container_and_survives_the_daemon() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let adjustment = everything(&node);
        add(&node, &engine, ("10", "adjuster"), move |method, argument| match method {
            "CreateContainer" => respond(adjustment.clone()),
            _ => neutral(method, argument),
        })
        .await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        config.env = vec![("OWN".into(), "1".into())];
        let id = node.run(&engine, &pod, config).await;
        let shown = exec(&engine, &id, "echo $PLUGGED.$OWN; stat -c %a:%u:%g:%t:%T /dev/plugged; ulimit -n").await;
        assert_eq!(shown, "a=b.\n640:7:8:1:3\n555\n");
        let mounts =
            exec(&engine, &id, "ls /plugged/image/image.tar; echo x > /scratch/f; cat /proc/self/mounts").await;
        assert!(mounts.starts_with("/plugged/image/image.tar\n"), "{mounts}");
        assert!(mounts.contains("size=64k") && !mounts.contains("/dev/mqueue"), "{mounts}");
        exec(&engine, &id, "echo x > /dev/plugged").await;
        assert_eq!(exec(&engine, &id, "touch /plugged/x 2>/dev/null || echo no").await, "no\n");
        assert_eq!(exec(&engine, &id, "cat /proc/1/oom_score_adj /proc/sys/net/ipv4/ip_forward").await, "321\n1\n");
        assert_eq!(exec(&engine, &id, "mkdir /tmp/x 2>/dev/null || echo no").await, "no\n");
        assert!(node.dir.join("hook-ran").exists());
        let spec = engine.inspect_container(&id).expect("known")["runtimeSpec"].clone();
        assert_eq!(spec["annotations"]["adjusted"], "yes");
        assert_eq!(spec["process"]["ioPriority"]["class"], "IOPRIO_CLASS_BE");
        assert_eq!(engine.container(&id).expect("known").resources.pids, Some(oci::Pids { limit: Some(77) }));
        // The seccomp policy also applies to what a later daemon and a later monitor execute.
        drop(engine);
        let engine = node.open().await;
        let before = node::monitor_pid(&engine).await;
        node::kill_monitor(&engine).await;
        node::wait_for_new_monitor(&engine, before).await;
        assert_eq!(exec(&engine, &id, "mkdir /tmp/x 2>/dev/null || echo no").await, "no\n");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn an_adjustment_that_cannot_be_applied_leaves_no_container() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let bad = Arc::new(Mutex::new(Adjustment::default()));
        let shown = Arc::clone(&bad);
        add(&node, &engine, ("10", "wrong"), move |method, argument| match method {
            "CreateContainer" => respond(shown.lock().expect("not poisoned").clone()),
            _ => neutral(method, argument),
        })
        .await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mount = |destination: &str, source: &str| Mount {
            destination: text(destination),
            source: text(source),
            options: vec![text("rbind")],
            ..Mount::default()
        };
        let linux = |linux| Adjustment { linux: Some(linux), ..Adjustment::default() };
        let namespace = Namespace { r#type: text("network"), path: text("/nonexistent") };
        let class =
            Resources { blockio_class: Some(nri::messages::Text { value: text("fast") }), ..Default::default() };
        let wrong = [
            ("/nonexistent", Adjustment { mounts: vec![mount("/x", "/nonexistent")], ..Adjustment::default() }),
            ("absolute", Adjustment { mounts: vec![mount("/x/../y", "/tmp")], ..Adjustment::default() }),
            ("OOM score", linux(AdjustmentLinux { oom_score_adj: Some(Int { value: 4000 }), ..Default::default() })),
            ("/nonexistent", linux(AdjustmentLinux { namespaces: vec![namespace], ..Default::default() })),
            ("fast", linux(AdjustmentLinux { resources: Some(class), ..Default::default() })),
            (
                "unknown.dev/x=1",
                Adjustment {
                    cdi_devices: vec![nri::messages::CdiDevice { name: text("unknown.dev/x=1") }],
                    ..Adjustment::default()
                },
            ),
        ];
        for (part, adjustment) in wrong {
            *bad.lock().expect("not poisoned") = adjustment;
            let error = engine.create_container(&pod, container("c", &["true"])).await.expect_err(part);
            assert!(error.message.contains(part) && error.message.contains("NRI plugins"), "{error}");
            assert!(engine.containers().is_empty());
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_plugin_follows_the_life_of_a_container_and_learns_of_it_again_after_a_restart() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let events = Events::default();
        add(&node, &engine, ("10", "logger"), logger(&events)).await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let update = oci::Resources { pids: Some(oci::Pids { limit: Some(50) }), ..oci::Resources::default() };
        engine.update_container(&id, update, None).await.expect("update");
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        engine.remove_container(&id).await.expect("remove");
        let keeps = node.run(&engine, &pod, script("d", "exec sleep 1000")).await;
        let seen = std::mem::take(&mut *events.lock().expect("not poisoned"));
        let life = |name: &str| {
            ["Create", "PostCreate", "Start", "PostStart"].map(|event| format!("{event}Container p/{name}")).to_vec()
        };
        let middle = ["Update", "PostUpdate", "Stop", "Remove"].map(|event| format!("{event}Container p/c")).to_vec();
        let first = vec![text("Synchronize 0 pods, 0 containers"), text("RunPodSandbox p")];
        assert_eq!(seen, [first, life("c"), middle, life("d")].concat());
        // A container that exits by itself is announced, too.
        let exits = node.run(&engine, &pod, script("e", "exit 3")).await;
        assert_eq!(exit_code(&engine, &exits).await, Some(3));
        engine.remove_container(&exits).await.expect("remove");
        let seen = std::mem::take(&mut *events.lock().expect("not poisoned"));
        let stops = seen.iter().filter(|event| *event == "StopContainer p/e").count();
        assert_eq!((stops, seen.last().map(String::as_str)), (1, Some("RemoveContainer p/e")), "{seen:?}");
        drop(engine);
        let engine = node.open().await;
        add(&node, &engine, ("10", "logger"), logger(&events)).await;
        assert_eq!(*events.lock().expect("not poisoned"), ["Synchronize 1 pods, 1 containers"]);
        assert_eq!(state(&engine, &keeps), ContainerState::Running);
        engine.remove_sandbox(&pod).await.expect("remove");
        let seen = events.lock().expect("not poisoned").clone();
        assert_eq!(
            seen[1..],
            ["StopContainer p/d", "StopPodSandbox p", "RemoveContainer p/d", "RemovePodSandbox p"].map(str::to_owned)
        );
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn plugins_update_and_evict_other_containers() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let first = node.run(&engine, &pod, script("first", "exec sleep 1000")).await;
        let target = first.to_string();
        let update = move |id: &str, limit: i64| {
            let memory = Memory { limit: Some(Int { value: limit }), ..Memory::default() };
            let resources = Some(Resources { memory: Some(memory), ..Resources::default() });
            ContainerUpdate {
                container_id: id.to_owned(),
                linux: Some(UpdateLinux { resources }),
                ignore_failure: false,
            }
        };
        let respond = {
            let target = target.clone();
            move |method: &str, argument: &[u8]| match method {
                "CreateContainer" => {
                    let update = vec![update(&target, 64 << 20)];
                    Reply::message(&CreateResponse { update, ..CreateResponse::default() })
                }
                _ => neutral(method, argument),
            }
        };
        add(&node, &engine, ("10", "balancer"), respond).await;
        let second = engine.create_container(&pod, container("second", &["sleep", "1000"])).await.expect("create");
        let limit = || engine.container(&first).expect("known").resources.memory.and_then(|memory| memory.limit);
        assert_eq!(limit(), Some(64 << 20));
        // On its own account.
        let registration = nri::messages::RegisterPlugin {
            plugin_name: text("eager"),
            plugin_idx: text("20"),
            ..nri::messages::RegisterPlugin::default()
        };
        let mut eager = Plugin::connect(&node.dir.join("nri.sock"), Arc::new(neutral)).await;
        eager.call("RegisterPlugin", &registration).await.expect("registered");
        let _ = tokio::time::timeout(REQUEST / 2, eager.serve_all()).await;
        let evict = vec![Eviction { container_id: second.to_string(), reason: text("noisy") }];
        let request = UpdateContainers { update: vec![update(&target, 32 << 20), update("unknown", 1)], evict };
        let failed = eager.call("UpdateContainers", &request).await.expect("answered");
        let failed = nri::messages::FailedUpdates::decode(&*failed).expect("an answer").failed;
        assert_eq!(failed.iter().map(|update| update.container_id.as_str()).collect::<Vec<_>>(), ["unknown"]);
        assert_eq!(limit(), Some(32 << 20));
        exit_code(&engine, &second).await;
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_container_waits_for_a_required_plugin_and_a_plugin_that_hangs_does_not_delay_the_next() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("guarded");
        config.annotations.insert(text("required-plugins.noderesource.dev"), text("[guard]"));
        let error = engine.run_sandbox(config.clone()).await.expect_err("its plugin is absent");
        assert!(error.kind == ErrorKind::Unavailable && error.message.contains("guard"), "{error}");
        add(&node, &engine, ("10", "guard"), |method: &str, argument: &[u8]| match method {
            "CreateContainer" => Reply::Hang,
            _ => neutral(method, argument),
        })
        .await;
        let guarded = engine.run_sandbox(config).await.expect("run");
        let free = engine.run_sandbox(node.sandbox("free")).await.expect("run");
        let error = engine.create_container(&guarded, container("c", &["sleep", "1000"])).await.expect_err("it hangs");
        assert!(error.kind == ErrorKind::Unavailable && error.message.contains("guard"), "{error}");
        let began = Instant::now();
        engine.create_container(&free, container("c", &["sleep", "1000"])).await.expect("create");
        assert!(began.elapsed() < REQUEST, "the plugin is disconnected: {:?}", began.elapsed());
        assert!(engine.plugins().is_empty());
        node.assert_nothing_left(engine).await;
    });
}
