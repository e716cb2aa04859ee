//! What pods and containers use, and what happens to them, told on the real kernel.

mod node;

use std::{cell::Cell, fs, path::Path, time::Duration};

use node::{PATIENCE, container, end, eventually, exec, on_a_node, script};
use pod::{ContainerState, Engine, EventKind, EventStream, SandboxState, SharedMode};

async fn all(engine: &Engine) -> Vec<String> {
    let mut ids: Vec<_> =
        engine.list_container_stats(|_, _, _| true).await.iter().map(|stats| stats.container.id.clone()).collect();
    ids.sort();
    ids
}

fn sorted<const N: usize>(mut ids: [&str; N]) -> Vec<String> {
    ids.sort_unstable();
    ids.map(str::to_owned).into()
}

#[test]
fn a_pod_is_measured_whole() {
    on_a_node("a_pod_is_measured_whole", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let empty = engine.sandbox_stats(&pod).await.expect("a pod without containers has stats");
        assert!(empty.containers.is_empty() && empty.cgroup().cpu_usage_ns == 0);
        let busy = node.run(&engine, &pod, script("busy", "while :; do :; done")).await;
        let text = "dd if=/dev/zero of=/written bs=64k count=16 2>/dev/null; ping -c 3 -i 0.1 10.85.0.1 >/dev/null; exec sleep 1000";
        let quiet = node.run(&engine, &pod, script("quiet", text)).await;
        let first = engine.container_stats(&busy).await.expect("busy");
        assert!(first.cpu_rate.is_some(), "the first sample has a rate, so that kubelet makes none: {first:?}");
        let stats = loop {
            let stats = engine.sandbox_stats(&pod[..12]).await.expect("by prefix");
            let known = |id: &str| stats.containers.iter().find(|c| c.container.id == id).and_then(|c| c.cpu_rate);
            // The pod was measured before its first container: until the next round its statistics are the sum of
            // theirs.
            let measured = stats.sample.cgroup.is_some() && stats.cpu_rate().is_some();
            if known(&busy).is_some_and(|rate| rate > 10_000_000) && measured {
                break stats;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let of = |id: &str| stats.containers.iter().find(|c| c.container.id == id).expect("in the pod's stats").clone();
        let (busy_stats, pods) = (of(&busy), stats.cgroup());
        assert!(busy_stats.cgroup.cpu_usage_ns > 0 && busy_stats.cgroup.memory_working_set > 0);
        assert!(busy_stats.cgroup.cpu_pressure.is_some() && busy_stats.cgroup.io_pressure.is_some(), "{busy_stats:?}");
        assert!(busy_stats.occasional.processes >= 1 && busy_stats.occasional.open_files_limit.is_some());
        // The pod is measured before its containers, which continue in the meantime.
        let later = busy_stats.at.saturating_sub(stats.sample.at);
        assert!(pods.cpu_usage_ns + later >= busy_stats.cgroup.cpu_usage_ns, "{pods:?} {busy_stats:?}");
        assert!(pods.memory_pressure.is_some());
        assert!(stats.processes() >= 2);
        let network = &stats.sample.network;
        assert_eq!((network.len(), network[0].interface.as_str()), (1, "eth0"));
        let seen: u64 =
            exec(&engine, &quiet, "cat /sys/class/net/eth0/statistics/rx_bytes").await.trim().parse().unwrap();
        assert!(network[0].rx_bytes <= seen && network[0].rx_packets <= seen, "{network:?}, and later {seen}");
        let layer = loop {
            let layer = engine.container_stats(&quiet).await.expect("quiet").writable_layer;
            if layer.bytes >= 1 << 20 {
                break layer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(layer.inodes >= 1);
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn one_that_is_frozen_or_dead_disturbs_no_list() {
    on_a_node("one_that_is_frozen_or_dead_disturbs_no_list", |node| async move {
        let engine = node.open_with_image().await;
        let mut host = node.sandbox("host");
        host.network = SharedMode::Node;
        let (pod, host) = (
            engine.run_sandbox(node.sandbox("web")).await.expect("run"),
            engine.run_sandbox(host).await.expect("run on the node's network"),
        );
        let frozen = node.run(&engine, &pod, container("frozen", &["sleep", "1000"])).await;
        let dead = node.run(&engine, &pod, container("dead", &["sleep", "1000"])).await;
        let alive = node.run(&engine, &host, container("alive", &["sleep", "1000"])).await;
        let waiting = engine.create_container(&host, container("waiting", &["sleep", "1000"])).await.expect("create");
        assert_eq!(all(&engine).await, sorted([&frozen, &dead, &alive]), "one that was not started uses nothing");
        assert!(engine.container_stats(&waiting).await.is_err());

        let group = engine.inspect_container(&frozen).expect("inspect")["cgroup"].as_str().expect("cgroup").to_owned();
        let freezer = Path::new("/sys/fs/cgroup/unified").join(group.trim_start_matches('/')).join("cgroup.freeze");
        let freezer = if freezer.exists() {
            freezer
        } else {
            Path::new("/sys/fs/cgroup").join(&group[1..]).join("cgroup.freeze")
        };
        fs::write(&freezer, "1").expect("freeze");
        engine.kill_container(&dead, 9, true).await.expect("kill");
        assert_eq!(end(&engine, &dead).await, Some(137));
        let listed = tokio::time::timeout(PATIENCE, all(&engine)).await.expect("a list waits for nobody");
        assert_eq!(listed, sorted([&frozen, &alive]));
        let pods = engine.list_sandbox_stats(|_, _| true).await;
        assert_eq!(pods.len(), 2);
        let on_the_node = pods.iter().find(|stats| stats.sample.sandbox.id == host).expect("host");
        assert!(on_the_node.sample.network.is_empty(), "the node's counters are no pod's");
        assert!(engine.sandbox_stats("").await.is_err(), "no pod has no name");
        fs::write(&freezer, "0").expect("thaw");

        engine.stop_sandbox(&host).await.expect("stop");
        assert_eq!(engine.list_sandbox_stats(|_, _| true).await.len(), 1, "a stopped pod uses nothing");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_list_is_the_same_until_something_changes() {
    on_a_node("a_list_is_the_same_until_something_changes", |node| async move {
        let engine = node.open_with_image().await;
        let mut marks = vec![engine.mark()];
        let mut changed = |engine: &Engine, what: &str| {
            // While a record is being changed each mark is another.
            let mark = Cell::new(engine.mark());
            eventually("nothing happens, nothing changes", || mark.replace(engine.mark()) == mark.get());
            let mark = mark.get();
            assert!(!marks.contains(&mark), "{what}: {mark:?} was there before");
            marks.push(mark);
        };
        let states =
            |engine: &Engine| engine.glance_at_containers(|container| container.settled.then_some(container.state));
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        changed(&engine, "a pod is made");
        let id = engine.create_container(&pod, container("one", &["sleep", "1000"])).await.expect("create");
        changed(&engine, "a container is made");
        assert_eq!(states(&engine), [ContainerState::Created]);
        engine.start_container(&id).await.expect("start");
        changed(&engine, "it is started");
        let of_all = engine.all_container_stats().await;
        assert!(of_all.stats.len() == 1 && of_all.hold.is_none(), "few are measured whenever somebody asks");
        let of_pods = engine.all_sandbox_stats().await;
        assert!(of_pods.stats.len() == 1 && of_pods.stats[0].containers.len() == 1 && of_pods.hold.is_none());
        engine.kill_container(&id, 9, true).await.expect("kill");
        assert_eq!(end(&engine, &id).await, Some(137));
        changed(&engine, "it ended");
        assert_eq!(states(&engine), [ContainerState::Exited]);
        engine.remove_container(&id).await.expect("remove");
        changed(&engine, "it is removed");
        engine.stop_sandbox(&pod).await.expect("stop");
        changed(&engine, "the pod is stopped");
        engine.remove_sandbox(&pod).await.expect("remove");
        changed(&engine, "the pod is removed");
        node.nothing_is_left(engine).await;
    });
}

async fn told(events: &mut EventStream, about: &[&str]) -> Vec<(usize, EventKind)> {
    let mut told = Vec::new();
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("told").expect("kept up").expect("open");
        let about = about.iter().position(|id| *id == event.id).expect("about one of these");
        told.push((about, event.kind));
        if (about, event.kind) == (0, EventKind::Deleted) {
            return told;
        }
    }
}

#[test]
fn what_happens_is_told_in_order() {
    on_a_node("what_happens_is_told_in_order", |node| async move {
        use EventKind::{Created, Deleted, Started, Stopped};
        let engine = node.open_with_image().await;
        let mut events = engine.events();
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let short = node.run(&engine, &pod, script("short", "exit 7")).await;
        assert_eq!(end(&engine, &short).await, Some(7));
        let wrong = engine.create_container(&pod, container("wrong", &["/no/such/program"])).await.expect("create");
        engine.start_container(&wrong).await.expect_err("cannot be executed");
        engine.remove_container(&short).await.expect("remove");
        engine.stop_sandbox(&pod).await.expect("stop");
        engine.remove_sandbox(&pod).await.expect("remove");
        // A second listener hears nothing of what was before.
        let mut late = engine.events();

        let mut first = engine.events();
        drop(engine.events());
        let told = told(&mut events, &[&pod, &short, &wrong]).await;
        assert_eq!(
            told,
            [
                (0, Created),
                (0, Started),
                (1, Created),
                (1, Started),
                (1, Stopped),
                (2, Created),
                (2, Stopped),
                (1, Deleted),
                (0, Stopped),
                (2, Deleted),
                (0, Deleted)
            ]
        );

        let again = engine.run_sandbox(node.sandbox("again")).await.expect("run");
        for stream in [&mut late, &mut first] {
            let event = stream.next().await.expect("kept up").expect("open");
            assert_eq!((event.kind, event.id.as_str()), (Created, again.as_str()));
            let sandbox = event.sandbox.as_ref().expect("its pod's state is with it");
            assert_eq!((sandbox.state, sandbox.ips.len()), (SandboxState::Ready, 1));
        }
        let one = node.run(&engine, &again, container("one", &["sleep", "1000"])).await;
        engine.stop_container(&one, Duration::ZERO).await.expect("stop");
        let states = async |stream: &mut EventStream, kind| loop {
            let event = stream.next().await.expect("kept up").expect("open");
            if event.kind == kind && event.id == one {
                return event.containers.iter().map(|c| (c.state, c.exit_code)).collect::<Vec<_>>();
            }
        };
        assert_eq!(states(&mut late, Started).await, [(ContainerState::Running, None)]);
        assert_eq!(states(&mut late, Stopped).await, [(ContainerState::Exited, Some(137))]);
        node.nothing_is_left(engine).await;
    });
}
