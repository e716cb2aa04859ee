//! Fields of a container's configuration, on the real kernel with a real monitor.

mod node;

use std::fs;

use node::{IMAGE, container, exec, on_a_node, script};
use pod::{ContainerConfig, ErrorKind, ImageVolume, Propagation, Volume, oci};

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
fn images_are_volumes_that_cannot_be_changed() {
    on_a_node("images_are_volumes_that_cannot_be_changed", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let volumes = vec![
            image("/img", ""),
            image("/page", "www"),
            image("/page.html", "/www/index.html".trim_start_matches('/')),
        ];
        let id = node.run(&engine, &pod, with(volumes)).await;
        let said = exec(&engine, &id, "cat /img/www/index.html /page/index.html /page.html | sort -u").await;
        assert_eq!(said, "hello from a pod without a pause\n");
        assert_eq!(exec(&engine, &id, "touch /img/x 2>&1 || true").await.matches("Read-only").count(), 1);
        assert!(exec(&engine, &id, "/img/bin/busybox true 2>&1 || true").await.contains("Permission denied"));
        let options = exec(&engine, &id, "grep ' /img ' /proc/self/mounts").await;
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(options.contains(option), "{option}: {options}");
        }
        // The image may go: what is in use stays, until the container is gone.
        engine.images().remove(IMAGE).await.expect("remove");
        assert_eq!(exec(&engine, &id, "cat /page/index.html").await, "hello from a pod without a pause\n");
        assert!(!engine.images().snapshots().is_empty());
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn what_is_not_in_an_image_is_refused_as_kubelet_reads_it() {
    on_a_node("what_is_not_in_an_image_is_refused_as_kubelet_reads_it", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut missing = image("/img", "");
        missing.image =
            Some(ImageVolume { image: "nowhere/else:1".into(), image_ref: String::new(), sub_path: "".into() });
        for (volume, want) in [
            (image("/img", "no/such"), "no/such"),
            (image("/img", "bin/busybox/below"), "bin/busybox/below"),
            (missing, "nowhere/else:1"),
        ] {
            let error = engine.create_container(&pod, with(vec![volume])).await.expect_err("refused");
            assert!(error.message.starts_with("ImageVolumeMountFailed: "), "{error}");
            assert!(error.message.contains(want), "{error}");
            assert!(engine.containers().is_empty() && engine.images().snapshots().is_empty());
        }
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn mounts_have_the_options_and_owners_that_were_asked_for() {
    on_a_node("mounts_have_the_options_and_owners_that_were_asked_for", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let host = node.dir.join("vol");
        fs::create_dir(&host).expect("folder");
        fs::copy(node.dir.join("image/layout/oci-layout"), host.join("file")).expect("copy");
        std::os::unix::fs::chown(host.join("file"), Some(100_005), Some(100_006)).expect("chown");
        let path = host.to_str().expect("text");
        let strict = Volume {
            options: ["noexec", "nosuid", "nodev", "noatime"].map(str::to_owned).to_vec(),
            ..bind("/strict", path)
        };
        let map = |host_id| vec![oci::IdMapping { container_id: 0, host_id, size: 65536 }];
        // The kernel's sense: ids on disk are the left side, what is seen the right one.
        let mapped = Volume { uid_mappings: map(7000), gid_mappings: map(8000), ..bind("/mapped", path) };
        std::os::unix::fs::chown(&host, Some(5), Some(6)).expect("chown");
        let id = node.run(&engine, &pod, with(vec![strict, mapped, bind("/plain", path)])).await;
        let options = exec(&engine, &id, "grep ' /strict ' /proc/self/mounts").await;
        for option in ["noexec", "nosuid", "nodev", "noatime"] {
            assert!(options.contains(option), "{option}: {options}");
        }
        assert!(!exec(&engine, &id, "grep ' /plain ' /proc/self/mounts").await.contains("noexec"));
        assert_eq!(exec(&engine, &id, "stat -c %u:%g /plain /mapped").await, "5:6\n7005:8006\n");
        node.nothing_is_left(engine).await;
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
    on_a_node("cdi_devices_are_found_while_the_engine_runs", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        config.cdi_devices = vec!["pinion.test/dev=one".into()];
        config.security.user = pod::UserChoice::Uid { uid: 33, gid: Some(33) };
        let error = engine.create_container(&pod, config.clone()).await.expect_err("unknown");
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("pinion.test/dev=one"), "{error}");
        let folder = node.dir.join("cdi-run");
        fs::create_dir(&folder).expect("folder");
        fs::write(folder.join("broken.json"), "{").expect("write");
        fs::write(folder.join("dev.json"), CDI.replace("HOST", node.dir.to_str().expect("text"))).expect("write");
        let id = node.run(&engine, &pod, config).await;
        assert_eq!(
            exec(&engine, &id, "echo $KIND $ONE; id -G; stat -c %u:%g /dev/pinion-null").await,
            "yes 1\n33 50 4242\n33:33\n"
        );
        exec(&engine, &id, "echo x > /dev/pinion-null; ls /opt/vendor/cdi-run").await;
        assert_eq!(exec(&engine, &id, "touch /opt/vendor/x 2>/dev/null || echo no").await, "no\n");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_privileged_container_needs_a_pod_that_allows_it() {
    on_a_node("a_privileged_container_needs_a_pod_that_allows_it", |node| async move {
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
        node.nothing_is_left(engine).await;
    });
}
