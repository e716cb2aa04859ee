//! Statistics and events of pods and containers, on the real kernel.

mod node;

use std::{cell::Cell, fs, path::Path, time::Duration};

use node::{TIMEOUT, container, exec, exit_code, on_a_node, script};
use pod::{ContainerId, ContainerState, Engine, EventKind, EventStream, ObjectId, SandboxState, SharedMode};
use testbed::wait_until;

async fn ids_with_stats(engine: &Engine) -> Vec<ContainerId> {
    let mut ids: Vec<_> =
        engine.list_container_stats(|_, _, _| true).await.iter().map(|stats| stats.container.id.clone()).collect();
    ids.sort();
    ids
}

fn sorted<const N: usize>(mut ids: [&ContainerId; N]) -> Vec<ContainerId> {
    ids.sort_unstable();
    ids.map(ContainerId::clone).into()
}

#[test]
fn a_pod_is_measured_with_its_containers() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let empty = engine.sandbox_stats(&pod).await.expect("a pod without containers has stats");
        assert!(empty.containers.is_empty() && empty.cgroup().cpu_usage_ns == 0);
        let busy = node.run(&engine, &pod, script("busy", "while :; do :; done")).await;
        let text = "dd if=/dev/zero of=/written bs=64k count=16 2>/dev/null; ping -c 3 -i 0.1 10.85.0.1 >/dev/null; exec sleep 1000";
        let quiet = node.run(&engine, &pod, script("quiet", text)).await;
        let first = engine.container_stats(&busy).await.expect("busy");
        assert!(first.cpu_rate.is_some(), "the first sample has a rate, so that kubelet computes none: {first:?}");
        let stats = loop {
            let stats = engine.sandbox_stats(&pod.as_str()[..12]).await.expect("by prefix");
            let cpu_rate =
                |id: &ContainerId| stats.containers.iter().find(|c| c.container.id == *id).and_then(|c| c.cpu_rate);
            // The pod was measured before its first container: until the next round its statistics are the sum of
            // theirs.
            let measured = stats.sample.cgroup.is_some() && stats.cpu_rate().is_some();
            if cpu_rate(&busy).is_some_and(|rate| rate > 10_000_000) && measured {
                break stats;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let stats_of = |id: &ContainerId| {
            stats.containers.iter().find(|c| c.container.id == *id).expect("in the pod's stats").clone()
        };
        let (busy_stats, pods) = (stats_of(&busy), stats.cgroup());
        assert!(busy_stats.cgroup.cpu_usage_ns > 0 && busy_stats.cgroup.memory_working_set > 0);
        assert!(busy_stats.cgroup.cpu_pressure.is_some() && busy_stats.cgroup.io_pressure.is_some(), "{busy_stats:?}");
        assert!(busy_stats.expensive.processes >= 1 && busy_stats.expensive.open_files_limit.is_some());
        // The pod is measured before its containers, which continue in the meantime.
        let delay = busy_stats.at.saturating_sub(stats.sample.at);
        assert!(pods.cpu_usage_ns + delay >= busy_stats.cgroup.cpu_usage_ns, "{pods:?} {busy_stats:?}");
        assert!(pods.memory_pressure.is_some());
        assert!(stats.processes() >= 2);
        let network = &stats.sample.network;
        assert_eq!((network.len(), network[0].interface.as_str()), (1, "eth0"));
        let later: u64 =
            exec(&engine, &quiet, "cat /sys/class/net/eth0/statistics/rx_bytes").await.trim().parse().unwrap();
        assert!(network[0].rx_bytes <= later && network[0].rx_packets <= later, "{network:?}, and later {later}");
        let layer = loop {
            let layer = engine.container_stats(&quiet).await.expect("quiet").writable_layer;
            if layer.bytes >= 1 << 20 {
                break layer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(layer.inodes >= 1);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn frozen_and_dead_containers_do_not_disturb_lists() {
    on_a_node(|node| async move {
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
        assert_eq!(
            ids_with_stats(&engine).await,
            sorted([&frozen, &dead, &alive]),
            "a container that was not started has no statistics"
        );
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
        assert_eq!(exit_code(&engine, &dead).await, Some(137));
        let listed =
            tokio::time::timeout(TIMEOUT, ids_with_stats(&engine)).await.expect("a list does not wait for containers");
        assert_eq!(listed, sorted([&frozen, &alive]));
        let pods = engine.list_sandbox_stats(|_, _| true).await;
        assert_eq!(pods.len(), 2);
        let on_the_node = pods.iter().find(|stats| stats.sample.sandbox.id == host).expect("host");
        assert!(on_the_node.sample.network.is_empty(), "the node's counters are not a pod's");
        assert!(engine.sandbox_stats("").await.is_err(), "an empty name matches no pod");
        fs::write(&freezer, "0").expect("thaw");

        engine.stop_sandbox(&host).await.expect("stop");
        assert_eq!(engine.list_sandbox_stats(|_, _| true).await.len(), 1, "a stopped pod has no statistics");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn the_generation_changes_only_when_something_changes() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut generations = vec![engine.generation()];
        let mut assert_changed = |engine: &Engine, change: &str| {
            // While a record is being changed, every generation is different.
            let generation = Cell::new(engine.generation());
            wait_until("the generation is stable", TIMEOUT, || {
                generation.replace(engine.generation()) == generation.get()
            });
            let generation = generation.get();
            assert!(!generations.contains(&generation), "{change}: {generation:?} was used before");
            generations.push(generation);
        };
        let states =
            |engine: &Engine| engine.summarize_containers(|container| container.settled.then_some(container.state));
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        assert_changed(&engine, "a pod is created");
        let id = engine.create_container(&pod, container("one", &["sleep", "1000"])).await.expect("create");
        assert_changed(&engine, "a container is created");
        assert_eq!(states(&engine), [ContainerState::Created]);
        engine.start_container(&id).await.expect("start");
        assert_changed(&engine, "it is started");
        let container_stats = engine.all_container_stats().await;
        assert!(
            container_stats.stats.len() == 1 && container_stats.validity.is_none(),
            "few containers are measured on demand"
        );
        let sandbox_stats = engine.all_sandbox_stats().await;
        assert!(
            sandbox_stats.stats.len() == 1
                && sandbox_stats.stats[0].containers.len() == 1
                && sandbox_stats.validity.is_none()
        );
        engine.kill_container(&id, 9, true).await.expect("kill");
        assert_eq!(exit_code(&engine, &id).await, Some(137));
        assert_changed(&engine, "it exited");
        assert_eq!(states(&engine), [ContainerState::Exited]);
        engine.remove_container(&id).await.expect("remove");
        assert_changed(&engine, "it is removed");
        engine.stop_sandbox(&pod).await.expect("stop");
        assert_changed(&engine, "the pod is stopped");
        engine.remove_sandbox(&pod).await.expect("remove");
        assert_changed(&engine, "the pod is removed");
        node.assert_nothing_left(engine).await;
    });
}

/// Receives events, with the index of their object in `ids`, until the first object is deleted.
async fn receive(events: &mut EventStream, ids: &[&str]) -> Vec<(usize, EventKind)> {
    let mut received = Vec::new();
    loop {
        let event = tokio::time::timeout(TIMEOUT, events.next())
            .await
            .expect("an event in time")
            .expect("no event was lost")
            .expect("open");
        let index = ids.iter().position(|id| *id == event.id.as_str()).expect("an event of one of these objects");
        received.push((index, event.kind));
        if (index, event.kind) == (0, EventKind::Deleted) {
            return received;
        }
    }
}

#[test]
fn events_are_sent_in_order() {
    on_a_node(|node| async move {
        use EventKind::{Created, Deleted, Started, Stopped};
        let engine = node.open_with_image().await;
        let mut events = engine.events();
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let short = node.run(&engine, &pod, script("short", "exit 7")).await;
        assert_eq!(exit_code(&engine, &short).await, Some(7));
        let wrong = engine.create_container(&pod, container("wrong", &["/no/such/program"])).await.expect("create");
        engine.start_container(&wrong).await.expect_err("cannot be executed");
        engine.remove_container(&short).await.expect("remove");
        engine.stop_sandbox(&pod).await.expect("stop");
        engine.remove_sandbox(&pod).await.expect("remove");
        // A later subscriber receives no earlier events.
        let mut late = engine.events();

        let mut first = engine.events();
        drop(engine.events());
        let received = receive(&mut events, &[pod.as_str(), short.as_str(), wrong.as_str()]).await;
        assert_eq!(
            received,
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
            let event = stream.next().await.expect("no event was lost").expect("open");
            assert_eq!((event.kind, event.id.as_str()), (Created, again.as_str()));
            let sandbox = event.sandbox.as_ref().expect("the event contains the state of its pod");
            assert_eq!((sandbox.state, sandbox.ips.len()), (SandboxState::Ready, 1));
        }
        let one = node.run(&engine, &again, container("one", &["sleep", "1000"])).await;
        engine.stop_container(&one, Duration::ZERO).await.expect("stop");
        let states = async |stream: &mut EventStream, kind| loop {
            let event = stream.next().await.expect("no event was lost").expect("open");
            if event.kind == kind && event.id == ObjectId::Container(one.clone()) {
                return event.containers.iter().map(|c| (c.state, c.exit_code)).collect::<Vec<_>>();
            }
        };
        assert_eq!(states(&mut late, Started).await, [(ContainerState::Running, None)]);
        assert_eq!(states(&mut late, Stopped).await, [(ContainerState::Exited, Some(137))]);
        node.assert_nothing_left(engine).await;
    });
}
