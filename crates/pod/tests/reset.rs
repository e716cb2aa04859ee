//! Reset removes everything that the engine created.

mod node;

use std::fs;

use node::{on_a_node, script};
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
