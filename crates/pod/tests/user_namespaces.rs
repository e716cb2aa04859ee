//! Pods with user namespaces, on the real kernel: ownership inside the pod and on the node.

mod node;

use std::{fs, os::unix::fs::MetadataExt, time::Duration};

use node::{TIMEOUT, container, exec, exit_code, kill_monitor, on_a_node, script};
use pod::{ContainerConfig, ErrorKind, PidMode, Propagation, SandboxConfig, SharedMode, UserMappings, Volume, oci};
use testbed::wait_until;

const FIRST: u32 = 655_360;
const LENGTH: u32 = 65_536;

fn maps(first: u32, size: u32) -> UserMappings {
    let map = vec![oci::IdMapping { container_id: 0, host_id: first, size }];
    UserMappings { uids: map.clone(), gids: map }
}

fn pod(node: &node::Node, name: &str, maps: &UserMappings) -> SandboxConfig {
    SandboxConfig { user_namespace: Some(maps.clone()), ..node.sandbox(name) }
}

fn with_maps(maps: &UserMappings, mut config: ContainerConfig) -> ContainerConfig {
    config.security.user_namespace = Some(maps.clone());
    config
}

fn namespace(pid: u32, kind: &str) -> fs::File {
    fs::File::open(format!("/proc/{pid}/ns/{kind}")).expect("a namespace")
}

fn owner_of(file: &fs::File) -> u64 {
    let owner = syscall::user_namespace::owning_user_namespace(file).expect("its owner");
    fs::File::from(owner).metadata().expect("metadata").ino()
}

#[test]
fn root_of_a_pod_is_unprivileged_on_the_node() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let condition = engine.status().await.user_namespaces;
        assert!(condition.ready, "{condition:?}");
        let maps = maps(FIRST, LENGTH);
        let id = engine.run_sandbox(pod(&node, "web", &maps)).await.expect("run");
        let one =
            node.run(&engine, &id, with_maps(&maps, script("one", "echo text > /dev/stdout; exec sleep 1000"))).await;
        wait_until("output that it writes by path", TIMEOUT, || node.log("one").contains("stdout F text"));
        let pid = engine.container(&one).expect("one").pid.expect("it is running");

        let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).expect("uid_map");
        let map: Vec<&str> = map.split_whitespace().collect();
        assert_eq!(map, ["0", &FIRST.to_string(), &LENGTH.to_string()]);
        let user = namespace(pid, "user").metadata().expect("metadata").ino();
        for kind in ["net", "ipc", "uts", "mnt", "pid", "cgroup"] {
            assert_eq!(owner_of(&namespace(pid, kind)), user, "{kind} is owned by the pod's user namespace");
        }
        let pinned = fs::File::open(format!("/run/netns/{id}")).expect("published");
        assert_eq!(owner_of(&pinned), user);

        assert_eq!(exec(&engine, &one, "id -u").await, "0\n");
        assert_eq!(exec(&engine, &one, "hostname").await, "web\n");
        let ips = engine.sandbox(&id).expect("pod").ips;
        assert!(exec(&engine, &one, "ip addr show eth0").await.contains(&ips[0].to_string()));
        // Files of the image belong to root in the pod, and written files to the mapped root on the node.
        assert_eq!(exec(&engine, &one, "stat -c %u:%g / /bin /bin/busybox /root").await, "0:0\n".repeat(4));
        exec(&engine, &one, "echo x > /root/new; chown 5:6 /root/new; echo >> /etc/passwd").await;
        let upper = engine.images().upper(one.as_str());
        let metadata = fs::metadata(upper.join("root/new")).expect("written");
        assert_eq!((metadata.uid(), metadata.gid()), (FIRST + 5, FIRST + 6));
        let metadata = fs::metadata(upper.join("etc/passwd")).expect("copied up");
        assert_eq!((metadata.uid(), metadata.gid()), (FIRST, FIRST));
        assert_eq!(fs::metadata(&upper).expect("upper").uid(), FIRST);
        // The files of the pod, /dev and the kernel's file systems.
        let shared =
            "/etc/hosts /etc/hostname /etc/resolv.conf /dev /dev/shm /dev/null /dev/pts /dev/mqueue /sys/fs/cgroup";
        let owners = exec(&engine, &one, &format!("stat -c '%u %n' {shared}")).await;
        assert!(owners.lines().all(|line| line.starts_with("0 ")), "{owners}");
        exec(
            &engine,
            &one,
            "echo x > /dev/shm/x; echo x > /dev/null; head -c 1 /dev/urandom > /dev/zero; ls /sys/class/net",
        )
        .await;
        exec(&engine, &one, "echo '10.0.0.9 more' >> /etc/hosts; echo e > /dev/stderr; (echo o > /proc/self/fd/1)")
            .await;

        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn root_of_a_pod_is_privileged_in_its_network_only() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (maps, others) = (maps(FIRST, LENGTH), maps(FIRST + LENGTH, LENGTH));
        let mut config = pod(&node, "web", &maps);
        config.sysctls.insert("net.ipv4.conf.all.rp_filter".into(), "2".into());
        config.sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
        config.sysctls.insert("kernel.domainname".into(), "example.test".into());
        let id = engine.run_sandbox(config).await.expect("run");
        let mut one = with_maps(&maps, script("one", "exec sleep 1000"));
        one.security.add_capabilities = vec!["NET_ADMIN".into(), "SYS_ADMIN".into(), "SYS_PTRACE".into()];
        one.security.readonly_paths = Some(vec![]);
        let one = node.run(&engine, &id, one).await;
        assert_eq!(
            exec(&engine, &one, "cat /proc/sys/net/ipv4/conf/all/rp_filter /proc/sys/kernel/shm_rmid_forced").await,
            "2\n1\n"
        );
        assert_eq!(exec(&engine, &one, "cat /proc/sys/kernel/domainname").await, "example.test\n");
        exec(&engine, &one, "nc -l -p 80 -e true & sleep 0.1; kill %1; echo 1 > /proc/sys/net/ipv4/ip_forward").await;
        assert_eq!(exec(&engine, &one, "cat /proc/sys/net/ipv4/ip_forward").await, "1\n");
        exec(&engine, &one, "ip link add dummy0 type veth; ip link set eth0 mtu 1400; ping -c 1 127.0.0.1").await;
        for forbidden in [
            "echo 1 > /proc/sys/kernel/panic",
            "mknod /tmp/x b 7 0",
            "echo x > /sys/kernel/mm/ksm/run",
            "mount -t tmpfs -o size=1m none /tmp && mknod /tmp/n c 1 3",
        ] {
            exec(&engine, &one, &format!("! ({forbidden})")).await;
        }

        let second = engine.run_sandbox(pod(&node, "db", &others)).await.expect("run");
        let mut two =
            with_maps(&others, script("two", "echo secret > /root/secret; chmod 600 /root/secret; exec sleep 1000"));
        two.security.pid = PidMode::Container;
        let two = node.run(&engine, &second, two).await;
        let pid = engine.container(&two).expect("two").pid.expect("it is running");
        wait_until("its file", TIMEOUT, || engine.images().upper(two.as_str()).join("root/secret").exists());
        // Runs a command with the ids that the first pod's root has on the node, as if it had escaped.
        let as_first = |command: &str| {
            let out = std::process::Command::new("setpriv")
                .args([
                    "--reuid",
                    &FIRST.to_string(),
                    "--regid",
                    &FIRST.to_string(),
                    "--clear-groups",
                    "sh",
                    "-c",
                    command,
                ])
                .output();
            out.expect("setpriv").status.success()
        };
        assert!(!as_first(&format!("kill -0 {pid}")), "it cannot signal another pod's process");
        assert!(!as_first(&format!("cat /proc/{pid}/environ")), "nor read its environment");
        assert!(!as_first(&format!("cat {}/root/secret", engine.images().upper(two.as_str()).display())));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn volumes_show_the_ids_of_the_pod() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let maps = maps(FIRST, LENGTH);
        let directory = node.dir.join("volume");
        fs::create_dir(&directory).expect("directory");
        fs::write(directory.join("old"), "old").expect("file");
        let id = engine.run_sandbox(pod(&node, "web", &maps)).await.expect("run");
        let volume = |path: &str, mapped: bool| Volume {
            container_path: path.into(),
            host_path: directory.clone(),
            image: None,
            options: vec![],
            uid_mappings: if mapped { maps.uids.clone() } else { vec![] },
            gid_mappings: if mapped { maps.gids.clone() } else { vec![] },
            readonly: false,
            recursive_readonly: false,
            propagation: Propagation::Private,
            selinux_relabel: false,
        };
        let image = Volume {
            host_path: Default::default(),
            image: Some(pod::ImageVolume {
                image: node::IMAGE.into(),
                image_ref: String::new(),
                sub_path: "etc".into(),
            }),
            readonly: true,
            ..volume("/image", true)
        };
        let mut config = script("one", "exec sleep 1000");
        config.volumes = vec![volume("/mapped", true), volume("/plain", false), image];
        let one = node.run(&engine, &id, with_maps(&maps, config)).await;
        let stat = "stat -c %u /mapped/old /plain/old /image/passwd";
        assert_eq!(exec(&engine, &one, stat).await, "0\n65534\n0\n");
        exec(&engine, &one, "echo new > /mapped/new; ! echo new > /plain/no; chown 7 /mapped/old").await;
        assert_eq!(fs::metadata(directory.join("new")).expect("new").uid(), 0, "the ids of the volume do not change");
        assert_eq!(fs::metadata(directory.join("old")).expect("old").uid(), 7);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn processes_are_shared_within_the_pod() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        // Too small to contain the user nobody.
        let maps = maps(FIRST, 1000);
        let mut config = pod(&node, "web", &maps);
        config.pid = PidMode::Pod;
        let id = engine.run_sandbox(config).await.expect("run");
        let shared = |name: &str, text: &str| {
            let mut config = with_maps(&maps, script(name, text));
            config.security.pid = PidMode::Pod;
            config
        };
        let one = node.run(&engine, &id, shared("one", "exec sleep 1001")).await;
        let two = node.run(&engine, &id, shared("two", "exec sleep 1002")).await;
        let seen = exec(&engine, &two, "ps").await;
        assert!(seen.contains("pod-init") && seen.contains("sleep 1001"), "{seen}");
        exec(&engine, &two, "kill $(ps | awk '/[s]leep 1001/ {print $1}')").await;
        assert_eq!(exit_code(&engine, &one).await, Some(143));

        let mut target = with_maps(&maps, script("debug", "ps; exec sleep 1003"));
        target.security.target = Some(two.to_string());
        let debug = node.run(&engine, &id, target).await;
        assert!(exec(&engine, &debug, "ps").await.contains("sleep 1002"));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_user_of_the_pod_owns_its_terminal_and_its_streams() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let maps = maps(FIRST, LENGTH);
        let id = engine.run_sandbox(pod(&node, "web", &maps)).await.expect("run");
        let as_user = |name: &str, text: &str| {
            let mut config = with_maps(&maps, script(name, text));
            config.security.user = pod::UserChoice::Uid { uid: 33, gid: Some(33) };
            config
        };
        let text = "id -u; echo again > /dev/stdout; echo err > /dev/stderr; exec sleep 1000";
        let one = node.run(&engine, &id, as_user("one", text)).await;
        wait_until("its output", TIMEOUT, || node.log("one").contains("stderr F err"));
        assert!(node.log("one").contains("stdout F 33") && node.log("one").contains("stdout F again"));
        assert_eq!(exec(&engine, &one, "echo text > /dev/stdout").await, "text\n");
        let mut terminal = as_user("tty", "stat -c '%u %g' $(tty); echo via > /dev/tty; sleep 1000");
        terminal.tty = true;
        node.run(&engine, &id, terminal).await;
        wait_until("the terminal's owner", TIMEOUT, || node.log("tty").contains("33 5"));
        wait_until("the terminal works", TIMEOUT, || node.log("tty").contains("via"));
        let mut unmapped = as_user("bad", "true");
        unmapped.security.user = pod::UserChoice::Uid { uid: i64::from(LENGTH), gid: None };
        let error = engine.create_container(&id, unmapped).await.expect_err("not mapped");
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("65536"), "{error}");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_container_with_other_mappings_than_its_pod_is_refused() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let (maps, other) = (maps(FIRST, LENGTH), maps(FIRST, 7));
        let id = engine.run_sandbox(pod(&node, "web", &maps)).await.expect("run");
        for config in [container("c", &["true"]), with_maps(&other, container("c", &["true"]))] {
            let error = engine.create_container(&id, config).await.expect_err("refused");
            assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains("userns_options"), "{error}");
        }
        let plain = engine.run_sandbox(node.sandbox("plain")).await.expect("run");
        let error =
            engine.create_container(&plain, with_maps(&maps, container("c", &["true"]))).await.expect_err("refused");
        assert!(error.message.contains("userns_options"), "{error}");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_on_the_nodes_network_has_its_own_user_namespace() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let maps = maps(FIRST, LENGTH);
        let mut config = pod(&node, "host", &maps);
        config.network = SharedMode::Node;
        let id = engine.run_sandbox(config).await.expect("run");
        let one = node.run(&engine, &id, with_maps(&maps, script("one", "exec sleep 1000"))).await;
        let pid = engine.container(&one).expect("one").pid.expect("it is running");
        let inode = |file: fs::File| file.metadata().expect("metadata").ino();
        assert_eq!(inode(namespace(pid, "net")), inode(fs::File::open("/proc/self/ns/net").expect("own")));
        assert_ne!(inode(namespace(pid, "user")), inode(fs::File::open("/proc/self/ns/user").expect("own")));
        assert!(exec(&engine, &one, "ip -o link; ls /sys/class/net").await.contains("lo"));
        exec(&engine, &one, "! ip link set lo down; ! echo 1 > /proc/sys/net/ipv4/ip_forward; ! mkdir /sys/x").await;
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_survives_the_death_of_daemon_and_monitor() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let maps = maps(FIRST, LENGTH);
        let id = engine.run_sandbox(pod(&node, "web", &maps)).await.expect("run");
        let empty = engine.run_sandbox(pod(&node, "empty", &maps)).await.expect("run");
        let one = node.run(&engine, &id, with_maps(&maps, script("one", "exec sleep 1000"))).await;
        let user = |engine: &pod::Engine, id: &pod::ContainerId| {
            namespace(engine.container(id).expect("container").pid.expect("it is running"), "user")
                .metadata()
                .expect("metadata")
                .ino()
        };
        let before = user(&engine, &one);
        let check = async |engine: &pod::Engine, name: &str| {
            let command = || ["sh", "-c", "id -u; hostname"].map(str::to_owned).to_vec();
            let output = loop {
                match engine.exec_sync(&one, command(), TIMEOUT).await {
                    // A new monitor is being started.
                    Err(error) if error.kind == ErrorKind::Unavailable => tokio::task::yield_now().await,
                    output => break output.expect("exec"),
                }
            };
            assert_eq!(String::from_utf8_lossy(&output.stdout), "0\nweb\n");
            let two = node.run(engine, &id, with_maps(&maps, script(name, "exec sleep 1000"))).await;
            assert_eq!(user(engine, &two), before, "{name}: the same user namespace");
            exec(engine, &two, "echo x > /root/x; echo x > /dev/shm/x; ip addr show eth0").await;
            let other = node.run(engine, &empty, with_maps(&maps, script(name, "exec sleep 1000"))).await;
            let (pid, namespace_id) =
                (engine.container(&other).expect("other").pid.expect("it is running"), user(engine, &other));
            for kind in ["net", "ipc", "uts"] {
                assert_eq!(owner_of(&namespace(pid, kind)), namespace_id, "{name}: {kind}");
            }
            for id in [two, other] {
                engine.stop_container(&id, Duration::ZERO).await.expect("stop");
                engine.remove_container(&id).await.expect("remove");
            }
        };
        kill_monitor(&engine).await;
        check(&engine, "after-the-monitor").await;
        drop(engine);
        let engine = node.open().await;
        check(&engine, "after-the-daemon").await;
        // Both die at once: only its pin holds the namespaces of the empty pod.
        kill_monitor(&engine).await;
        drop(engine);
        let engine = node.open().await;
        check(&engine, "after-both").await;
        node.assert_nothing_left(engine).await;
    });
}
