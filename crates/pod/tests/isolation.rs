//! The effects of a pod, or of a file system that it uses, are confined to that pod.

mod node;

use std::{
    ffi::CString,
    fs::{self, File},
    os::fd::AsRawFd,
    path::Path,
};

use futures_util::future::join_all;
use node::{TIMEOUT, exec, exit_code, on_a_node, script};
use pod::{Propagation, Volume};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use testbed::{shell, wait_until};

fn volume(path: &Path) -> Volume {
    Volume {
        container_path: "/volume".into(),
        host_path: path.to_owned(),
        image: None,
        readonly: false,
        recursive_readonly: false,
        propagation: Propagation::Private,
        selinux_relabel: false,
        uid_mappings: vec![],
        gid_mappings: vec![],
        options: vec![],
    }
}

/// Mounts a file system whose server never answers. Requests that wait for it fail when the returned file is closed.
fn hung_mount(mount_point: &Path) -> File {
    fs::create_dir_all(mount_point).expect("a mount point");
    let server = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    let options = CString::new(options).expect("text");
    mount("hung", mount_point, "fuse", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str()).expect("mount");
    server
}

#[test]
fn a_volume_whose_server_is_gone_delays_no_other_pod() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("hangs")).await.expect("run");
        let mount_point = node.dir.join("hung");
        let server = hung_mount(&mount_point);
        let hanging: Vec<_> = (0..80)
            .map(|n| {
                let mut config = script(&format!("c{n}"), "true");
                config.volumes = vec![volume(&mount_point.join("volume"))];
                let (engine, pod) = (engine.clone(), pod.clone());
                tokio::spawn(async move { engine.create_container(&pod, config).await })
            })
            .collect();
        wait_until("all containers are being created", TIMEOUT, || engine.containers().len() == 80);

        let healthy = async {
            let other = engine.run_sandbox(node.sandbox("healthy")).await.expect("run");
            let shared = node.dir.join("shared");
            fs::create_dir(&shared).expect("a volume");
            fs::write(shared.join("file"), "").expect("a file");
            let mut config = script("c", "test -e /volume/file");
            config.volumes = vec![volume(&shared)];
            let id = node.run(&engine, &other, config).await;
            assert_eq!(exit_code(&engine, &id).await, Some(0));
        };
        tokio::time::timeout(TIMEOUT, healthy).await.expect("a pod with healthy volumes starts");

        drop(server);
        for outcome in join_all(hanging).await {
            let error = outcome.expect("no panic").expect_err("its volume failed");
            assert!(error.message.contains(mount_point.to_str().expect("text")), "{error}");
        }
        unmount(&mount_point, UnmountFlags::DETACH).expect("unmount");
        node.assert_nothing_left(engine).await;
    });
}

/// An engine without a running monitor opens all logs again. Here the file system of one log does not answer until the
/// third daemon runs.
#[test]
fn a_log_whose_file_system_does_not_answer_is_continued_by_a_later_daemon() {
    on_a_node(|node| async move {
        if std::env::var_os("PINION_CRASH_AT").is_some() {
            // The second daemon exits while it waits for the log.
            let engine = node.open().await;
            let id = engine.containers()[0].id.clone();
            assert_eq!(exec(&engine, &id, "echo alive").await, "alive\n");
            std::process::exit(0);
        }
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("web");
        let logs = node.dir.join("hung");
        fs::create_dir(&logs).expect("directory");
        config.log_directory = Some(logs.clone());
        let pod = engine.run_sandbox(config).await.expect("run");
        let id = node
            .run(
                &engine,
                &pod,
                script("c", "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo end"),
            )
            .await;
        let log = logs.join("c.log");
        let text = || fs::read_to_string(&log).unwrap_or_default();
        wait_until("it is logged", TIMEOUT, || text().contains("line"));
        let monitor = engine.status().await.info.monitor.map(|monitor| monitor.pid);
        drop(engine);
        shell(&format!("kill -9 {}", monitor.expect("pid")));
        let server = hung_mount(&logs);
        assert!(!node.crash("nowhere"), "the second daemon exits by itself");
        let third = node.open().await;
        assert_eq!(exec(&third, &id, "echo alive").await, "alive\n");
        drop(server);
        unmount(&logs, UnmountFlags::DETACH).expect("unmount");
        let before = text().len();
        wait_until("its log is continued", TIMEOUT, || text().len() > before);
        exec(&third, &id, "touch /tmp/stop").await;
        assert_eq!(exit_code(&third, &id).await, Some(0));
        wait_until("the end is logged", TIMEOUT, || text().trim_end().ends_with(" end"));
        let text = text();
        let numbers = text.lines().filter_map(|line| line.rsplit_once("line ")?.1.parse::<usize>().ok());
        assert!(numbers.eq(1..text.lines().count()), "each line is logged once: {text}");
        node.assert_nothing_left(third).await;
    });
}

#[test]
fn writes_to_the_files_of_etc_are_bounded_and_kept() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let one = node.run(&engine, &pod, script("one", "exec sleep 1000")).await;
        exec(&engine, &one, "echo 192.0.2.7 added >> /etc/hosts").await;
        let used = || shell("df --output=used /run | tail -1").trim().parse::<u64>().expect("KiB");
        let before = used();
        exec(&engine, &one, "dd if=/dev/zero of=/etc/resolv.conf bs=1M count=64 2>/dev/null; true").await;
        exec(&engine, &one, "dd if=/dev/zero of=/etc/hostname bs=1M count=64 2>/dev/null; true").await;
        assert!(used() < before + (8 << 10), "{before} KiB, then {}", used());
        // A full tmpfs of one pod leaves room for everything else.
        let two = node.run(&engine, &pod, script("two", "exec sleep 1000")).await;
        assert!(exec(&engine, &two, "cat /etc/hosts").await.contains("added"));
        exec(&engine, &one, ": > /etc/resolv.conf; echo web > /etc/hostname").await;

        // After a restart of the daemon the files are the same. After a restart of daemon and monitor running
        // containers keep them, and new containers get new ones.
        drop(engine);
        let engine = node.open().await;
        let three = node.run(&engine, &pod, script("three", "exec sleep 1000")).await;
        assert!(exec(&engine, &three, "cat /etc/hosts").await.contains("added"));
        let monitor = engine.status().await.info.monitor.expect("the monitor").pid;
        drop(engine);
        shell(&format!("kill -9 {monitor}; while [ -e /proc/{monitor}/root/ ]; do sleep 0.01; done"));
        let engine = node.open().await;
        assert!(exec(&engine, &three, "cat /etc/hosts").await.contains("added"));
        let four = node.run(&engine, &pod, script("four", "exec sleep 1000")).await;
        assert_eq!(exec(&engine, &four, "cat /etc/hostname").await, "web\n");
        let ip = engine.sandbox(&pod).expect("pod").ips[0].to_string();
        assert!(exec(&engine, &four, "cat /etc/hosts").await.contains(&ip));
        node.assert_nothing_left(engine).await;
    });
}
