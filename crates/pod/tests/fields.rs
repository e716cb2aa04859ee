//! Fields of a container's configuration, on the real kernel with a real monitor.

mod node;

use std::fs;

use node::{IMAGE, TIMEOUT, container, exec, on_a_node, script};
use pod::{ContainerConfig, ErrorKind, ImageVolume, Propagation, Volume, oci};
use testbed::{shell, wait_until};

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

fn image(inside: &str, sub_path: &str) -> Volume {
    let image = ImageVolume { image: IMAGE.into(), image_ref: String::new(), sub_path: sub_path.into() };
    Volume { image: Some(image), readonly: true, host_path: "".into(), ..bind(inside, "") }
}

fn with(volumes: Vec<Volume>) -> ContainerConfig {
    ContainerConfig { volumes, ..script("c", "exec sleep 1000") }
}

#[test]
fn image_volumes_are_read_only() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let volumes = vec![
            image("/img", ""),
            image("/page", "www"),
            image("/page.html", "/www/index.html".trim_start_matches('/')),
            Volume { options: vec!["noexec".to_owned()], ..image("/data", "") },
        ];
        let id = node.run(&engine, &pod, with(volumes)).await;
        let text = exec(&engine, &id, "cat /img/www/index.html /page/index.html /page.html | sort -u").await;
        assert_eq!(text, "hello from a pod without a pause\n");
        assert_eq!(exec(&engine, &id, "touch /img/x 2>&1 || true").await.matches("Read-only").count(), 1);
        assert_eq!(exec(&engine, &id, "/img/bin/busybox echo runs").await, "runs\n");
        assert!(exec(&engine, &id, "/data/bin/busybox true 2>&1 || true").await.contains("Permission denied"));
        let options = exec(&engine, &id, "grep ' /img ' /proc/self/mounts").await;
        for option in ["ro", "nosuid", "nodev"] {
            assert!(options.contains(option), "{option}: {options}");
        }
        // The image can be removed: its layers stay until the container is removed.
        engine.images().remove(IMAGE).await.expect("remove");
        assert_eq!(exec(&engine, &id, "cat /page/index.html").await, "hello from a pod without a pause\n");
        assert!(!engine.images().snapshots().is_empty());
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_missing_path_of_an_image_is_an_error_that_kubelet_recognizes() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut missing = image("/img", "");
        missing.image =
            Some(ImageVolume { image: "nowhere/else:1".into(), image_ref: String::new(), sub_path: "".into() });
        for (volume, expected) in [
            (image("/img", "no/such"), "no/such"),
            (image("/img", "bin/busybox/below"), "bin/busybox/below"),
            (missing, "nowhere/else:1"),
        ] {
            let error = engine.create_container(&pod, with(vec![volume])).await.expect_err("refused");
            assert!(error.message.starts_with("ImageVolumeMountFailed: "), "{error}");
            assert!(error.message.contains(expected), "{error}");
            assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn mounts_have_the_requested_options_and_owners() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let host = node.dir.join("vol");
        fs::create_dir(&host).expect("directory");
        fs::copy(node.dir.join("image/layout/oci-layout"), host.join("file")).expect("copy");
        std::os::unix::fs::chown(host.join("file"), Some(100_005), Some(100_006)).expect("chown");
        let path = host.to_str().expect("text");
        let strict = Volume {
            options: ["noexec", "nosuid", "nodev", "noatime"].map(str::to_owned).to_vec(),
            ..bind("/strict", path)
        };
        let map = |host_id| vec![oci::IdMapping { container_id: 0, host_id, size: 65536 }];
        // As for the kernel: the left side is the ids on disk, the right side the ids that are shown.
        let mapped = Volume { uid_mappings: map(7000), gid_mappings: map(8000), ..bind("/mapped", path) };
        std::os::unix::fs::chown(&host, Some(5), Some(6)).expect("chown");
        let id = node.run(&engine, &pod, with(vec![strict, mapped, bind("/plain", path)])).await;
        let options = exec(&engine, &id, "grep ' /strict ' /proc/self/mounts").await;
        for option in ["noexec", "nosuid", "nodev", "noatime"] {
            assert!(options.contains(option), "{option}: {options}");
        }
        assert!(!exec(&engine, &id, "grep ' /plain ' /proc/self/mounts").await.contains("noexec"));
        assert_eq!(exec(&engine, &id, "stat -c %u:%g /plain /mapped").await, "5:6\n7005:8006\n");
        node.assert_nothing_left(engine).await;
    });
}

const CDI: &str = r#"{"cdiVersion": "0.7.0", "kind": "pinion.test/dev",
    "containerEdits": {"env": ["KIND=yes"]},
    "devices": [{"name": "one", "containerEdits": {
        "env": ["ONE=1"], "additionalGids": [4242],
        "deviceNodes": [{"path": "/dev/pinion-null", "hostPath": "/dev/null", "permissions": "rw"}],
        "mounts": [{"hostPath": "HOST", "containerPath": "/opt/vendor", "options": ["ro", "nosuid"]}]}}]}"#;

#[test]
fn cdi_devices_are_found_while_the_engine_runs() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        config.cdi_devices = vec!["pinion.test/dev=one".into()];
        config.security.user = pod::UserChoice::Uid { uid: 33, gid: Some(33) };
        let error = engine.create_container(&pod, config.clone()).await.expect_err("unknown");
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("pinion.test/dev=one"), "{error}");
        let directory = node.dir.join("cdi-run");
        fs::create_dir(&directory).expect("directory");
        fs::write(directory.join("broken.json"), "{").expect("write");
        fs::write(directory.join("dev.json"), CDI.replace("HOST", node.dir.to_str().expect("text"))).expect("write");
        let id = node.run(&engine, &pod, config).await;
        assert_eq!(
            exec(&engine, &id, "echo $KIND $ONE; id -G; stat -c %u:%g /dev/pinion-null").await,
            "yes 1\n33 50 4242\n33:33\n"
        );
        exec(&engine, &id, "echo x > /dev/pinion-null; ls /opt/vendor/cdi-run").await;
        assert_eq!(exec(&engine, &id, "touch /opt/vendor/x 2>/dev/null || echo no").await, "no\n");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_privileged_container_needs_a_pod_that_allows_it() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = container("c", &["sleep", "1000"]);
        config.security.privileged = true;
        let error = engine.create_container(&pod, config.clone()).await.expect_err("refused");
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("privileged"), "{error}");
        let mut allowed = node.sandbox("q");
        allowed.privileged = true;
        let pod = engine.run_sandbox(allowed).await.expect("run");
        let id = node.run(&engine, &pod, config).await;
        assert_eq!(exec(&engine, &id, "grep Seccomp: /proc/self/status | tr -d '\t'").await, "Seccomp:0\n");
        assert!(exec(&engine, &id, "grep ' /sys/fs/cgroup' /proc/self/mounts | head -1").await.contains("rw"));
        node.assert_nothing_left(engine).await;
    });
}

fn memory(limit: i64, swap: Option<i64>) -> oci::Resources {
    let memory = oci::Memory { limit: Some(limit), swap, ..oci::Memory::default() };
    oci::Resources { memory: Some(memory), ..oci::Resources::default() }
}

#[test]
fn limits_change_up_and_down_or_not_at_all() {
    on_a_node(|node| async move {
        const MIB: i64 = 1 << 20;
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = script("c", "head -c 40000000 /dev/zero | tail & exec sleep 1000");
        config.resources = memory(100 * MIB, Some(100 * MIB));
        config.oom_score_adj = 100;
        let id = node.run(&engine, &pod, config).await;
        let limits = async || {
            let status = engine.container(&id).expect("container");
            let stats = engine.container_stats(&id).await.expect("stats").cgroup.clone();
            (status.resources.memory.and_then(|memory| memory.limit), stats.memory_limit)
        };
        for (limit, swap) in [(200, None), (64, None), (300, Some(310 * MIB))] {
            engine.update_container(&id, memory(limit * MIB, swap), None).await.expect("update");
            let memory = engine.container(&id).expect("container").resources.memory;
            assert_eq!(memory.and_then(|memory| memory.limit), Some(limit * MIB));
        }
        wait_until("memory is in use", TIMEOUT, || {
            let pids = shell("pidof tail || true");
            let sizes = pids.split_whitespace().map(|pid| fs::read_to_string(format!("/proc/{pid}/statm")));
            sizes.flatten().any(|size| size.split(' ').nth(1).is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 9000)))
        });
        let error = engine.update_container(&id, memory(8 * MIB, None), None).await.expect_err("in use");
        assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
        assert!(error.message.contains("memory_limit_in_bytes: 8388608"), "{error}");
        assert_eq!(limits().await.0, Some(300 * MIB));

        // An update that the kernel refuses halfway is rolled back completely.
        let cpu = oci::Cpu { shares: Some(700), cpus: Some("4000".into()), ..oci::Cpu::default() };
        let both = oci::Resources { cpu: Some(cpu), ..memory(290 * MIB, None) };
        let shares = || {
            shell(&format!(
                "cat /sys/fs/cgroup/cpu{}/*/{id}/cpu.shares 2>/dev/null || cat /sys/fs/cgroup{}/*/{id}/cpu.weight",
                node.config.default_cgroup_parent, node.config.default_cgroup_parent
            ))
        };
        let before = shares();
        assert!(engine.update_container(&id, both, None).await.is_err());
        assert_eq!((limits().await.0, shares()), (Some(300 * MIB), before));

        engine.update_container(&id, oci::Resources::default(), Some(345)).await.expect("update");
        assert_eq!(engine.container(&id).expect("container").oom_score_adj, 345);
        assert_eq!(exec(&engine, &id, "cat /proc/1/oom_score_adj /proc/self/oom_score_adj").await, "345\n345\n");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_has_its_own_limits() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("p");
        config.resources = Some(memory(200 << 20, None));
        config.overhead = Some(memory(20 << 20, None));
        let pod = engine.run_sandbox(config).await.expect("run");
        let _one = node.run(&engine, &pod, script("one", "exec sleep 1000")).await;
        let limit = || {
            let group = format!("{}/{pod}", node.config.default_cgroup_parent);
            let read = format!(
                "cat /sys/fs/cgroup/memory{group}/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup{group}/memory.max"
            );
            shell(&read).trim().parse::<u64>().expect("a number")
        };
        assert_eq!(limit(), 220 << 20);
        engine.update_sandbox(&pod, None, Some(memory(300 << 20, None))).await.expect("update");
        assert_eq!(limit(), 320 << 20);
        let info = engine.inspect_sandbox(&pod).expect("inspect");
        assert_eq!(info["resources"]["memory"]["limit"], 300 << 20);
        assert_eq!(info["overhead"]["memory"]["limit"], 20 << 20);
        engine.stop_sandbox(&pod).await.expect("stop");
        let error = engine.update_sandbox(&pod, None, None).await.expect_err("stopped");
        assert_eq!(error.kind, ErrorKind::FailedPrecondition);
        assert_eq!(engine.update_sandbox("beef", None, None).await.expect_err("unknown").kind, ErrorKind::NotFound);
        node.assert_nothing_left(engine).await;
    });
}

/// CRIU may or may not work on this kernel; either way the container keeps running and nothing is left over.
#[test]
fn a_checkpoint_is_written_or_refused_and_the_container_keeps_running() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "echo new > /etc/new; rm /www/index.html; exec sleep 1000")).await;
        let location = node.dir.join("checkpoint.tar");
        let zero = std::time::Duration::ZERO;
        // Waits until the program has made both changes.
        exec(&engine, &id, "while [ -e /www/index.html ]; do sleep 0.02; done").await;
        let works = std::process::Command::new("criu").arg("check").output().is_ok_and(|out| out.status.success());
        match engine.checkpoint_container(&id, &location, zero).await {
            Ok(()) => {
                assert!(works);
                let list = shell(&format!("tar -tf {}", location.display()));
                for name in ["config.dump", "spec.dump", "status.dump", "rootfs-diff.tar", "checkpoint/inventory.img"] {
                    assert!(list.lines().any(|line| line == name), "{name}: {list}");
                }
            }
            Err(error) => {
                assert!(!works, "{error}");
                assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
                assert!(error.message.contains("criu"), "{error}");
            }
        }
        assert_eq!(exec(&engine, &id, "cat /etc/new").await, "new\n");
        let refused = engine.checkpoint_container(&id, "relative.tar".as_ref(), zero).await.expect_err("relative");
        assert!(refused.kind == ErrorKind::InvalidArgument && refused.message.contains("location"), "{refused}");
        engine.stop_container(&id, zero).await.expect("stop");
        let refused = engine.checkpoint_container(&id, &location, zero).await.expect_err("exited");
        assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
        assert!(!node.dir.join("data/checkpoint").join(id.as_str()).exists());
        node.assert_nothing_left(engine).await;
    });
}
