//! Adjustments that the kernel shows: a container that was created with one really has it.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use nri::messages::{
    Adjustment, AdjustmentLinux, ContainerUpdate, Hook, Hooks, IoPriority, MemoryPolicy, NetDevice, Resources,
    Scheduler, Text, UpdateLinux, UpdateResponse,
};
use pod::{ContainerId, Engine, oci};
use testbed::{shell, wait_until};

use crate::{
    node::{self, TIMEOUT, container, exec, on_a_node, script},
    plugin::{Reply, neutral},
    setup::{add, enable, respond, text},
};

/// Returns the process of a running container.
fn pid(engine: &Engine, id: &ContainerId) -> u32 {
    engine.container(id).expect("known").pid.expect("it is running")
}

#[test]
fn scheduling_memory_policy_and_network_devices_of_a_plugin_are_those_of_the_process() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        shell("ip link add plug0 type veth peer name plug1; ip address add 192.0.2.9/24 dev plug0");
        let linux = AdjustmentLinux {
            // Of the protocol: SCHED_BATCH, IOPRIO_CLASS_BE, MPOL_BIND with MPOL_F_STATIC_NODES.
            scheduler: Some(Scheduler { policy: 4, nice: 7, ..Scheduler::default() }),
            io_priority: Some(IoPriority { class: 2, priority: 6 }),
            memory_policy: Some(MemoryPolicy { mode: 2, nodes: text("0"), flags: vec![0] }),
            net_devices: [(text("plug0"), NetDevice { name: text("inside0") })].into(),
            ..AdjustmentLinux::default()
        };
        let adjustment = Adjustment { linux: Some(linux), ..Adjustment::default() };
        add(&node, &engine, ("10", "adjuster"), move |method, argument| match method {
            "CreateContainer" => respond(adjustment.clone()),
            _ => neutral(method, argument),
        })
        .await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let pid = pid(&engine, &id);
        let scheduling = shell(&format!("chrt -p {pid}; ps -o ni= -p {pid}; ionice -p {pid}"));
        for part in ["SCHED_BATCH", "\n  7\n", "best-effort: prio 6"] {
            assert!(scheduling.contains(part), "{part:?} in {scheduling}");
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/numa_maps")).expect("a kernel with NUMA");
        assert!(maps.lines().all(|line| line.contains(" bind=static:0")), "{maps}");
        let devices = exec(&engine, &id, "cat /proc/net/dev; cat /proc/net/fib_trie").await;
        assert!(devices.contains("inside0:") && !devices.contains("plug0:"), "{devices}");
        assert!(devices.contains("192.0.2.9"), "its address moves with it: {devices}");
        assert!(!shell("ip -o link").contains("plug0"));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn the_cgroup_that_a_plugin_chose_is_removed_also_if_the_monitor_dies_in_the_creation() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let path = format!("{}/chosen", node.config.default_cgroup_parent);
        let (marker, monitor) = (node.dir.join("cgroup"), node::monitor_pid(&engine).await.expect("a monitor"));
        // Hooks of the runtime run once the cgroup exists.
        let command = format!("cat /proc/$PPID/cgroup > {}; kill -KILL {monitor}", marker.display());
        let args = ["sh", "-c", &command].map(text).to_vec();
        let hook = Hook { path: text("/bin/sh"), args, ..Hook::default() };
        let adjustment = Adjustment {
            hooks: Some(Hooks { create_runtime: vec![hook], ..Hooks::default() }),
            linux: Some(AdjustmentLinux { cgroups_path: path.clone(), ..AdjustmentLinux::default() }),
            ..Adjustment::default()
        };
        add(&node, &engine, ("10", "placer"), move |method, argument| match method {
            "CreateContainer" => respond(adjustment.clone()),
            _ => neutral(method, argument),
        })
        .await;
        engine.create_container(&pod, container("c", &["sleep", "1000"])).await.expect_err("the monitor dies");
        assert!(marker.exists(), "the hook did not run");
        let group = format!("/sys/fs/cgroup/unified{path}");
        // The creation is rolled back by the next monitor, after the caller got the error.
        wait_until("the cgroup is removed", TIMEOUT, || !Path::new(&group).exists());
        wait_until("the container is removed", TIMEOUT, || engine.containers().is_empty());
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_class_in_the_response_to_an_update_is_refused_and_nothing_is_changed() {
    on_a_node(|mut node| async move {
        enable(&mut node);
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let response = Arc::new(Mutex::new(Resources::default()));
        let (target, requested) = (id.to_string(), Arc::clone(&response));
        add(&node, &engine, ("10", "classes"), move |method, argument| match method {
            "UpdateContainer" => {
                let linux = Some(UpdateLinux { resources: Some(requested.lock().expect("not poisoned").clone()) });
                let update = ContainerUpdate { container_id: target.clone(), linux, ..ContainerUpdate::default() };
                Reply::message(&UpdateResponse { update: vec![update], ..UpdateResponse::default() })
            }
            _ => neutral(method, argument),
        })
        .await;
        let update = || engine.update_container(&id, pids(50), None);
        let class = Some(Text { value: text("gold") });
        let classes = [
            ("block I/O", Resources { blockio_class: class.clone(), ..Resources::default() }),
            ("RDT", Resources { rdt_class: class, ..Resources::default() }),
        ];
        for (kind, resources) in classes {
            *response.lock().expect("not poisoned") = resources;
            let error = update().await.expect_err(kind).to_string();
            assert!(error.contains(&format!("{kind} class \"gold\"")), "{error}");
            assert_eq!(engine.container(&id).expect("known").resources.pids, None);
        }
        *response.lock().expect("not poisoned") = Resources::default();
        update().await.expect("updated");
        assert_eq!(engine.container(&id).expect("known").resources.pids, pids(50).pids);
        node.assert_nothing_left(engine).await;
    });
}

fn pids(limit: i64) -> oci::Resources {
    oci::Resources { pids: Some(oci::Pids { limit: Some(limit) }), ..oci::Resources::default() }
}
