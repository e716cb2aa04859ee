//! Defaults of containers that the administrator configured, on the real kernel.

mod node;

use node::{IMAGE, exec, on_a_node, script};
use pod::{ContainerDefaults, Rlimit};

#[test]
fn containers_have_the_defaults_of_the_administrator() {
    on_a_node(|mut node| async move {
        node.config.defaults = ContainerDefaults {
            rlimits: vec![Rlimit { kind: "RLIMIT_NOFILE".into(), soft: 100, hard: 200 }],
            sysctls: [("net.core.somaxconn".to_owned(), "77".to_owned())].into(),
            capabilities: vec!["CAP_CHOWN".into(), "CAP_KILL".into()],
            env: vec!["FIRST=node".into(), "SECOND=node".into()],
            pids_limit: Some(50),
        };
        node.config.pinned_images = vec!["*busybox*".into(), IMAGE.into()];
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        config.env.push(("SECOND".into(), "pod".into()));
        let id = node.run(&engine, &pod, config).await;
        assert_eq!(exec(&engine, &id, "ulimit -Sn; ulimit -Hn").await, "100\n200\n");
        assert_eq!(exec(&engine, &id, "cat /proc/sys/net/core/somaxconn").await, "77\n");
        // CAP_CHOWN is bit 0, CAP_KILL bit 5.
        let bounding = exec(&engine, &id, "grep CapBnd /proc/self/status").await;
        assert!(bounding.trim_end().ends_with("0000000000000021"), "{bounding}");
        assert_eq!(exec(&engine, &id, "echo $FIRST $SECOND").await, "node pod\n");
        let image = engine.images().find(IMAGE).expect("found").expect("an image");
        assert!(engine.is_pinned(&image), "{:?}", image.repo_tags);
        let stats = engine.container_stats(&id).await.expect("statistics");
        assert_eq!(stats.cgroup.pids_limit, Some(50));
        node.assert_nothing_left(engine).await;
    });
}
