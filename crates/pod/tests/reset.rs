//! Reset removes everything that the engine created, and nothing else.

mod node;

use std::fs;

use node::{on_a_node, script};
use pod::{NetworkChoice, NetworkRequest, PodNetworks, SandboxConfig};
use testbed::shell;

#[test]
fn reset_removes_everything_but_a_mounted_disk() {
    on_a_node(|node| async move {
        let data = node.dir.join("data");
        fs::create_dir(&data).expect("directory");
        shell(&format!("mount -t tmpfs tmpfs {}", data.display()));
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        engine.create_network(NetworkRequest { name: "shop".into(), ..Default::default() }).await.expect("create");
        let shop = NetworkChoice { network: "shop".into(), ..NetworkChoice::default() };
        let named = PodNetworks { networks: Some(vec![shop]), ..PodNetworks::default() };
        engine.run_sandbox(SandboxConfig { named, ..node.sandbox("n") }).await.expect("run");
        assert!(shell("ip -o link").contains("br-"));
        engine.reset(true).await.expect("reset");
        assert!(!node.config.state_dir.exists());
        assert_eq!(shell("nft list tables; ip -o link | grep -v ': lo:' || true"), "");

        let engine = node.open().await;
        assert_eq!(engine.images().list().len(), 1, "images stay if requested");
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        engine.reset(false).await.expect("reset");
        assert!(!node.config.state_dir.exists());
        assert_eq!(fs::read_dir(&data).expect("the disk").count(), 0);
        assert!(!node.config.netns_dir.exists(), "no other program has namespaces there");
        assert_eq!(shell("nft list tables; ip -o link | grep -v ': lo:' || true"), "");
        shell(&format!("umount {}", data.display()));

        let engine = node.open().await;
        let others = node.config.netns_dir.join("of-another-program");
        fs::write(&others, "").expect("file");
        engine.reset(false).await.expect("reset");
        assert!(!data.exists());
        assert!(others.exists(), "it does not belong to the engine");
        fs::remove_file(others).expect("file");
    });
}

#[test]
fn reset_refuses_a_linked_state_directory_and_keeps_a_mount_of_the_administrator() {
    on_a_node(|mut node| async move {
        shell("mkdir /run/target; mount -t tmpfs administrator /run/target; ln -s target /run/link");
        node.config.state_dir = "/run/link".into();
        node.config.network.state_dir = "/run/link/network".into();
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let error = engine.reset(true).await.expect_err("a link").to_string();
        assert!(error.contains("/run/link is a symbolic link to target, and nothing was removed"), "{error}");
        assert!(fs::exists(format!("/run/target/sandbox/{pod}")).expect("readable"));

        let engine = node.open().await;
        engine.remove_sandbox(&pod).await.expect("it still exists");
        drop(engine);
        shell("rm /run/link; mkdir /run/link; mount --bind /run/target /run/link");
        let engine = node.open().await;
        engine.reset(true).await.expect("reset");
        let mounts = shell("cat /proc/self/mountinfo");
        let mounts = mounts.lines().filter(|line| line.contains(" tmpfs administrator "));
        assert_eq!(mounts.count(), 2, "they stay mounted");
        assert_eq!(fs::read_dir("/run/target").expect("the tmpfs").count(), 0);
        shell("umount /run/link /run/target; rmdir /run/link /run/target");

        // Not on a tmpfs: the engine mounts one, and unmounts it.
        let state = node.dir.join("state");
        node.config.state_dir.clone_from(&state);
        node.config.network.state_dir = state.join("network");
        let engine = node.open().await;
        let is_mounted = || shell("cat /proc/self/mountinfo").contains(&format!(" {} ", state.display()));
        assert!(is_mounted());
        engine.reset(true).await.expect("reset");
        assert!(!is_mounted() && !state.exists());
    });
}
