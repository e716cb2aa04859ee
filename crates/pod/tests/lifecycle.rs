//! The lifecycle of a pod on the real kernel, with a real monitor.

mod node;

use std::{fs, time::Duration};

use node::{TIMEOUT, container, exec, exit_code, on_a_node, script, state};
use pod::{
    ContainerConfig, ContainerState, ErrorKind, PidMode, PodUsers, Propagation, SandboxState, SharedMode, UserChoice,
    Volume,
};
use testbed::wait_until;

#[test]
fn a_pod_of_two_containers_runs_and_leaves_nothing_behind() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        assert!(engine.status().await.runtime.ready);
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let status = engine.sandbox(&pod.as_str()[..12]).expect("by prefix");
        assert_eq!((status.state, status.ips.len()), (SandboxState::Ready, 1));

        let id = node.run(&engine, &pod, script("one", "echo out; echo err >&2; exec sleep 1000")).await;
        assert_eq!(state(&engine, &id), ContainerState::Running);
        wait_until("the log", TIMEOUT, || node.log("one").lines().count() == 2);
        assert!(node.log("one").contains("stdout F out") && node.log("one").contains("stderr F err"));
        assert_eq!(exec(&engine, &id, "hostname").await, "web\n");
        assert!(exec(&engine, &id, "cat /etc/hosts").await.contains(&status.ips[0].to_string()));
        assert!(exec(&engine, &id, "ip addr show eth0").await.contains(&status.ips[0].to_string()));
        let stats = engine.container_stats(&id).await.expect("stats");
        assert!(stats.cgroup.memory_usage > 0 && stats.cgroup.pids >= 1, "{stats:?}");

        let two = node.run(&engine, &pod, script("two", "echo shared > /dev/shm/x; exit 3")).await;
        assert_eq!(exit_code(&engine, &two).await, Some(3));
        assert_eq!(engine.container(&two).expect("two").reason, "Error");
        assert_eq!(exec(&engine, &id, "cat /dev/shm/x").await, "shared\n");
        assert_eq!(engine.containers().len(), 2);

        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        assert_eq!(engine.container(&id).expect("one").exit_code, Some(137));
        engine.stop_container(&id, Duration::ZERO).await.expect("stop twice");
        engine.remove_container(&two).await.expect("remove");
        engine.remove_container(&two).await.expect("remove twice");
        engine.stop_sandbox(&pod).await.expect("stop pod");
        assert_eq!(engine.sandbox(&pod).expect("pod").state, SandboxState::NotReady);
        let refused = engine.create_container(&pod, container("three", &["true"])).await.expect_err("stopped");
        assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
        engine.remove_sandbox(&pod).await.expect("remove pod");
        engine.remove_sandbox(&pod).await.expect("remove pod twice");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn errors_name_the_cause_and_leave_nothing_behind() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut handler = node.sandbox("x");
        handler.runtime_handler = "nope".into();
        let error = engine.run_sandbox(handler).await.expect_err("handler");
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        let text =
            r#"runtime handler "nope" is not configured on this node; configured: the default one, without a name;"#;
        assert!(error.message.contains(text), "{error}");
        let mut sysctl = node.sandbox("x");
        sysctl.sysctls.insert("kernel.panic".into(), "1".into());
        let error = engine.run_sandbox(sysctl).await.expect_err("sysctl");
        assert!(error.message.contains("kernel.panic"), "{error}");
        assert!(engine.sandboxes().is_empty());

        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let refused = async |config| {
            let error = engine.create_container(&pod, config).await.expect_err("refused");
            assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
            error
        };
        let mut image = container("c", &["true"]);
        image.image = "nowhere/else:1".into();
        let error = refused(image).await;
        assert!(error.kind == ErrorKind::NotFound && error.message.contains("nowhere/else:1"), "{error}");
        let mut volume = container("c", &["true"]);
        volume.volumes = vec![bind("/data", "/proc/does/not")];
        let error = refused(volume).await;
        assert!(
            error.kind == ErrorKind::InvalidArgument && error.message.contains("/proc/does/not: it does not exist"),
            "{error}"
        );
        let mut capability = container("c", &["true"]);
        capability.security.add_capabilities = vec!["FLY".into()];
        assert!(refused(capability).await.message.contains("FLY"));
        let mut user = container("c", &["true"]);
        user.security.user = UserChoice::Name("nobody-here".into());
        assert!(refused(user).await.message.contains("nobody-here"));

        let missing = engine.create_container(&pod, container("c", &["nginxx"])).await.expect("create");
        let error = engine.start_container(&missing).await.expect_err("no such command");
        assert!(error.message.contains("nginxx"), "{error}");
        assert_eq!(error.command, Some(pod::CommandError::NotFound), "{error}");
        let status = engine.container(&missing).expect("status");
        assert_eq!((status.state, status.exit_code), (ContainerState::Exited, Some(128)));
        assert_eq!(status.reason, "StartError");
        assert!(status.message.contains("nginxx"));
        assert_eq!(engine.start_container(&missing).await.expect_err("ended").kind, ErrorKind::FailedPrecondition);
        for unknown in [engine.start_container("beef").await, engine.kill_container("beef", 9, false).await] {
            assert_eq!(unknown.expect_err("unknown").kind, ErrorKind::NotFound);
        }
        engine.stop_container("beef", Duration::ZERO).await.expect("unknown");
        engine.remove_container("beef").await.expect("unknown");
        node.assert_nothing_left(engine).await;
    });
}

fn bind(inside: &str, host: &str) -> Volume {
    Volume {
        container_path: inside.into(),
        host_path: host.into(),
        image: None,
        options: vec![],
        uid_mappings: vec![],
        gid_mappings: vec![],
        readonly: false,
        recursive_readonly: false,
        propagation: Propagation::Private,
        selinux_relabel: false,
    }
}

#[test]
fn only_an_unused_pod_is_stopped() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        assert!(engine.stop_unused_sandbox("beef", PodUsers::All).await.expect("unknown"), "the pod does not exist");
        let pod = engine.run_sandbox(node.sandbox("a")).await.expect("run");
        let id = node.run(&engine, &pod, script("one", "sleep 1000")).await;
        for users in [PodUsers::All, PodUsers::NotExited] {
            assert!(
                !engine.stop_unused_sandbox(&pod, users).await.expect("checked"),
                "{users:?}: the container is running"
            );
        }
        assert_eq!(state(&engine, &id), ContainerState::Running);
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        assert!(!engine.stop_unused_sandbox(&pod, PodUsers::All).await.expect("checked"), "the container exists");
        assert!(engine.stop_unused_sandbox(&pod, PodUsers::NotExited).await.expect("stopped"));
        assert_eq!(engine.sandbox(&pod).expect("the pod exists").state, SandboxState::NotReady);

        // A container that is being created either uses the pod or is refused. It is never stopped with the pod.
        for round in 0..20 {
            let pod = engine.run_sandbox(node.sandbox(&format!("b{round}"))).await.expect("run");
            let creation = {
                let (engine, pod) = (engine.clone(), pod.clone());
                tokio::spawn(async move { engine.create_container(&pod, script("c", "sleep 1000")).await })
            };
            tokio::time::sleep(Duration::from_micros(100 * round)).await;
            let stopped = engine.stop_unused_sandbox(&pod, PodUsers::NotExited).await.expect("checked");
            let created = creation.await.expect("no panic");
            assert_eq!(stopped, created.is_err(), "round {round}: {created:?}");
            if let Ok(id) = created {
                engine.start_container(&id).await.expect("it was not stopped");
            }
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn requests_of_one_name_share_an_operation_and_cancelled_ones_complete() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (one, two) = tokio::join!(engine.run_sandbox(node.sandbox("a")), engine.run_sandbox(node.sandbox("a")));
        let id = one.expect("one");
        assert_eq!(two.expect("two"), id);
        assert_eq!(engine.run_sandbox(node.sandbox("a")).await.expect("again"), id);

        // A caller that disconnects at its first await.
        let call = engine.run_sandbox(node.sandbox("b"));
        tokio::time::timeout(Duration::ZERO, call).await.expect_err("disconnected");
        let pod = engine.run_sandbox(node.sandbox("b")).await.expect("shared");
        assert_eq!(engine.sandboxes().len(), 2);
        assert_eq!(engine.sandbox(&pod).expect("b").state, SandboxState::Ready);

        let config = script("c", "sleep 1000");
        tokio::time::timeout(Duration::ZERO, engine.create_container(&pod, config.clone()))
            .await
            .expect_err("disconnected");
        let first = engine.create_container(&pod, config.clone()).await.expect("shared");
        assert_eq!(engine.create_container(&pod, config.clone()).await.expect("the same"), first);
        let mut other = config.clone();
        other.args = vec!["more".into()];
        // The first container was not started, so the second request replaces it. A running container is not replaced.
        let second = engine.create_container(&pod, other).await.expect("replaced");
        assert!(second != first && engine.container(&first).is_err());
        let third = engine.create_container(&pod, config.clone()).await.expect("replaced again");
        engine.start_container(&third).await.expect("start");
        assert_eq!(engine.create_container(&pod, config.clone()).await.expect("the same"), third);
        let other = ContainerConfig { args: vec!["more".into()], ..config };
        let conflict = engine.create_container(&pod, other).await.expect_err("a running container has that name");
        assert_eq!(conflict.kind, ErrorKind::AlreadyExists);
        assert_eq!(engine.containers().len(), 1);

        engine.stop_sandbox(&id).await.expect("stop");
        let new = engine.run_sandbox(node.sandbox("a")).await.expect("a stopped pod does not block its name");
        assert_ne!(new, id);
        assert_eq!(engine.sandboxes().len(), 3);
        engine.remove_sandbox(&id).await.expect("remove");
        assert_eq!(engine.run_sandbox(node.sandbox("a")).await.expect("the new one"), new);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn volumes_users_and_modes_are_as_requested() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut pod = node.sandbox("p");
        pod.pid = PidMode::Pod;
        let pod = engine.run_sandbox(pod).await.expect("run");
        let host = node.dir.join("vol");
        fs::create_dir(&host).expect("directory");
        fs::write(host.join("file"), "from the node").expect("file");
        let mut config = script("one", "exec sleep 1000");
        config.security.pid = PidMode::Pod;
        config.security.user = UserChoice::Name("www-data".into());
        config.security.supplemental_groups = vec![77];
        config.env = vec![("GREETING".into(), "hello".into())];
        config.volumes = vec![Volume { readonly: true, ..bind("/vol", host.to_str().expect("text")) }];
        let one = node.run(&engine, &pod, config).await;
        assert_eq!(exec(&engine, &one, "id -u; id -G").await, "33\n33 50 77\n");
        assert_eq!(exec(&engine, &one, "cat /vol/file; echo; echo $GREETING").await, "from the node\nhello\n");
        assert_eq!(exec(&engine, &one, "touch /vol/x 2>/dev/null || echo no").await, "no\n");
        let mut config = script("two", "exec sleep 1000");
        config.security.pid = PidMode::Pod;
        config.security.readonly_rootfs = true;
        let two = node.run(&engine, &pod, config).await;
        assert_eq!(exec(&engine, &two, "touch /x 2>/dev/null || echo no").await, "no\n");
        assert_eq!(exec(&engine, &two, "ps -o args | grep -c '^sleep 1000'; true").await.trim(), "2");

        let mut limited = node.sandbox("limited");
        let pids = Some(pod::oci::Pids { limit: Some(7) });
        limited.resources = Some(pod::oci::Resources { pids, ..pod::oci::Resources::default() });
        let limited = engine.run_sandbox(limited).await.expect("run");
        let four = node.run(&engine, &limited, script("four", "exec sleep 1000")).await;
        let bomb = "for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done";
        let output = engine.exec_sync(&four, ["sh", "-c", bomb].map(str::to_owned).to_vec(), TIMEOUT).await;
        assert_ne!(output.expect("exec").exit_code, 0);

        let mut host = node.sandbox("host");
        (host.network, host.ipc, host.pid) = (SharedMode::Node, SharedMode::Node, PidMode::Node);
        let host = engine.run_sandbox(host).await.expect("run");
        assert_eq!(engine.sandbox(&host).expect("host").netns, None);
        let mut config = script("three", "exec sleep 1000");
        config.security.pid = PidMode::Node;
        let three = node.run(&engine, &host, config).await;
        assert!(exec(&engine, &three, "ip -o link").await.contains("pinion0"));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_log_that_was_rotated_is_replaced_at_its_maximum_size() {
    on_a_node(|mut node| async move {
        node.config.log_size_max = Some(10_000);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let waiting = "echo first; while [ ! -e /go ]; do sleep 0.01; done; seq 1 1000; exec sleep 1000";
        let id = node.run(&engine, &pod, script("c", waiting)).await;
        let (log, rotated) = (node.logs().join("c.log"), node.logs().join("c.log.20260101"));
        let has = |path: &std::path::Path, end: &str| fs::read_to_string(path).is_ok_and(|text| text.ends_with(end));
        wait_until("the first line is logged", TIMEOUT, || has(&log, "first\n"));
        fs::rename(&log, &rotated).expect("rotated");
        engine.reopen_log(&id).await.expect("reopened");
        exec(&engine, &id, "touch /go").await;
        wait_until("the last line is logged", TIMEOUT, || has(&log, " 1000\n"));
        let size = fs::metadata(&log).expect("the log").len();
        assert!((1000..=10_000).contains(&size), "{size}");
        assert!(has(&rotated, "first\n"), "the rotated log is not touched");
        node.assert_nothing_left(engine).await;
    });
}
