//! Requests that are refused: the error names the field, nothing has waited, and nothing is left over.

mod node;

use std::{fs, os::unix::fs::symlink, path::Path};

use node::{TIMEOUT, container, exec, on_a_node, script};
use pod::{ContainerConfig, ErrorKind, PidMode, Propagation, Security, SharedMode, Volume};
use testbed::{shell, wait_until};

fn volume(host: &Path, inside: &str, propagation: Propagation) -> Volume {
    Volume {
        container_path: inside.into(),
        host_path: host.into(),
        image: None,
        options: vec![],
        uid_mappings: vec![],
        gid_mappings: vec![],
        readonly: false,
        recursive_readonly: false,
        propagation,
        selinux_relabel: false,
    }
}

fn with_security(change: impl FnOnce(&mut Security)) -> ContainerConfig {
    let mut config = container("c", &["sleep", "1000"]);
    change(&mut config.security);
    config
}

#[test]
fn a_container_gets_no_more_of_the_node_than_its_pod() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        for (config, field) in [
            (with_security(|s| s.network = Some(SharedMode::Node)), "namespace_options.network"),
            (with_security(|s| s.ipc = Some(SharedMode::Node)), "namespace_options.ipc"),
            (with_security(|s| s.pid = PidMode::Node), "namespace_options.pid"),
            (with_security(|s| s.privileged = true), "privileged"),
        ] {
            let error = engine.create_container(&pod, config).await.expect_err(field);
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
            assert!(error.message.contains(&format!("config.linux.security_context.{field}: ")), "{error}");
            assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
        }
        let mut host = node.sandbox("host");
        (host.network, host.ipc, host.pid) = (SharedMode::Node, SharedMode::Node, PidMode::Node);
        let host = engine.run_sandbox(host).await.expect("run");
        let config = with_security(|s| {
            (s.network, s.ipc, s.pid) = (Some(SharedMode::Node), Some(SharedMode::Node), PidMode::Node);
        });
        let id = node.run(&engine, &host, config).await;
        let namespaces = "stat -L -c %i /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/pid";
        assert_eq!(exec(&engine, &id, namespaces).await, shell(namespaces));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_link_or_fifo_in_place_of_the_log_is_not_written() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (logs, victim) = (node.dir.join("logs-of-p"), node.dir.join("victim"));
        fs::write(&victim, "").expect("write");
        let mut config = node.sandbox("p");
        config.log_directory = Some(logs.clone());
        let pod = engine.run_sandbox(config).await.expect("run");
        let mut config = script("c", "echo out; exec sleep 1000");
        config.log_path = Some("c/0.log".into());
        let log = logs.join("c/0.log");
        fs::create_dir_all(logs.join("c")).expect("directory");
        for place in [&(|| symlink(&victim, &log).expect("link")) as &dyn Fn(), &|| {
            drop(shell(&format!("mkfifo {}", log.display())))
        }] {
            place();
            let error = engine.create_container(&pod, config.clone()).await.expect_err("refused");
            assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
            assert!(error.message.contains("c/0.log") && error.message.contains("remove it"), "{error}");
            assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
            fs::remove_file(&log).expect("remove");
        }
        let id = node.run(&engine, &pod, config).await;
        wait_until("the log is written", TIMEOUT, || {
            fs::read_to_string(&log).is_ok_and(|text| text.ends_with("out\n"))
        });
        fs::rename(&log, logs.join("c/0.log.1")).expect("rotate");
        symlink(&victim, &log).expect("link");
        let error = engine.reopen_log(&id).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
        fs::remove_file(&log).expect("remove");
        engine.reopen_log(&id).await.expect("reopen");
        assert!(log.is_file() && fs::read_to_string(&victim).expect("read").is_empty());
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn propagation_needs_a_mount_that_propagates() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let host = node.dir.join("vol");
        fs::create_dir(&host).expect("directory");
        for (propagation, mode) in
            [(Propagation::HostToContainer, "host-to-container"), (Propagation::Bidirectional, "bidirectional")]
        {
            let mut config = container("c", &["sleep", "1000"]);
            config.volumes = vec![volume(&host, "/vol", propagation)];
            let error = engine.create_container(&pod, config).await.expect_err("refused");
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
            assert!(error.message.contains(mode) && error.message.contains("make-shared"), "{error}");
        }
        shell(&format!("mount --bind {0} {0} && mount --make-shared {0}", host.display()));
        let mut config = container("c", &["sleep", "1000"]);
        config.volumes = vec![
            volume(&host, "/in", Propagation::HostToContainer),
            volume(&host, "/both", Propagation::Bidirectional),
            volume(&host, "/none", Propagation::Private),
        ];
        let id = node.run(&engine, &pod, config).await;
        fs::create_dir(host.join("new")).expect("directory");
        shell(&format!("mount -t tmpfs later {}/new", host.display()));
        let seen = exec(&engine, &id, "grep ^later /proc/self/mounts | cut -d' ' -f2 | sort").await;
        assert_eq!(seen, "/both/new\n/in/new\n");
        shell(&format!("umount {0}/new && umount {0}", host.display()));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_missing_directory_of_the_node_is_created() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let (shared, outside) = (node.dir.join("shared"), node.dir.join("outside"));
        fs::create_dir(&shared).expect("directory");
        let with_volume = |host: &Path, propagation| ContainerConfig {
            volumes: vec![volume(host, "/vol", propagation)],
            ..container("c", &["sleep", "1000"])
        };
        let id = node.run(&engine, &pod, with_volume(&shared.join("new/below"), Propagation::Private)).await;
        exec(&engine, &id, "echo inside > /vol/file").await;
        assert_eq!(shell(&format!("cat {}/new/below/file", shared.display())), "inside\n");
        assert_eq!(shell(&format!("stat -c '%a %u' {0}/new {0}/new/below", shared.display())), "755 0\n755 0\n");
        engine.remove_container(&id).await.expect("remove");
        assert!(shared.join("new/below/file").exists(), "the directory belongs to the node");

        // A missing directory is created only if the path contains no dangling link and no file.
        symlink(&outside, shared.join("link")).expect("link");
        fs::write(shared.join("file"), "").expect("file");
        for (path, reason) in [("link", "dangling"), ("link/x", "dangling"), ("file/x", "not a directory")] {
            let error = engine.create_container(&pod, with_volume(&shared.join(path), Propagation::Private)).await;
            let error = error.expect_err(path);
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
            assert!(error.message.contains(path) && error.message.contains(reason), "{error}");
        }
        assert!(!outside.exists() && engine.containers().is_empty());

        // The propagation of the new directory is that of the mount that it is on.
        shell(&format!("mount --bind {0} {0} && mount --make-shared {0}", shared.display()));
        let id = node.run(&engine, &pod, with_volume(&shared.join("mounts"), Propagation::Bidirectional)).await;
        shell(&format!("mount -t tmpfs later {}/mounts", shared.display()));
        assert_eq!(exec(&engine, &id, "grep -c ^later /proc/self/mounts").await, "1\n");
        shell(&format!("umount {0}/mounts && umount {0}", shared.display()));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn more_mounts_than_fit_in_one_message() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let host = node.dir.join("vol");
        fs::create_dir(&host).expect("directory");
        let many = |count: usize| {
            let mut config = container("c", &["sleep", "1000"]);
            config.volumes = (0..count).map(|n| volume(&host, &format!("/v/{n}"), Propagation::Private)).collect();
            config
        };
        let error = engine.create_container(&pod, many(4097)).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        assert!(error.message.contains("config.mounts"), "{error}");
        assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
        let id = node.run(&engine, &pod, many(600)).await;
        assert_eq!(exec(&engine, &id, "grep -c ' /v/' /proc/self/mounts").await, "600\n");
        node.assert_nothing_left(engine).await;
    });
}
