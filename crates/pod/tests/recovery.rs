//! The daemon, the monitor or both die, and nothing is lost.

mod node;

use std::{fs, time::Duration};

use node::{
    TIMEOUT, container, exec, exit_code, kill_monitor, monitor_pid, on_a_node, script, state, wait_for_new_monitor,
};
use pod::{ContainerState, Engine, PidMode, SandboxState};
use rustix::process::{Pid, Signal, kill_process};
use testbed::{shell, wait_until};

/// Writes a number every few milliseconds until it receives SIGTERM.
const COUNT: &str = "trap 'exit 7' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done";

/// Asserts that a log contains all numbers from 0, each once, and returns their count.
fn assert_gapless(log: &str) -> usize {
    for (expected, line) in log.lines().enumerate() {
        assert_eq!(line.rsplit(' ').next(), Some(expected.to_string().as_str()), "line {expected}: {line}");
    }
    log.lines().count()
}

#[test]
fn a_restarted_daemon_knows_all_pods_and_containers() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("web");
        config.pid = PidMode::Pod;
        let pod = engine.run_sandbox(config).await.expect("run");
        let counter = node.run(&engine, &pod, script("counter", COUNT)).await;
        let mut shared = script("shared", "exec sleep 1000");
        shared.security.pid = PidMode::Pod;
        let shared = node.run(&engine, &pod, shared).await;
        let waiting = engine.create_container(&pod, script("waiting", "exit 5")).await.expect("create");
        let ended = node.run(&engine, &pod, script("ended", "exit 4")).await;
        assert_eq!(exit_code(&engine, &ended).await, Some(4));
        let quick = node.run(&engine, &pod, script("quick", "sleep 0.2; exit 6")).await;
        let before = engine.sandbox(&pod).expect("pod").ips;
        let lines = node.log("counter").lines().count();
        drop(engine);

        // The container `quick` exits while no daemon is running.
        let engine = node.open().await;
        assert_eq!(engine.sandbox(&pod).expect("pod").state, SandboxState::Ready);
        assert_eq!(engine.sandbox(&pod).expect("pod").ips, before);
        assert_eq!(engine.containers().len(), 5);
        assert_eq!(state(&engine, &counter), ContainerState::Running);
        assert_eq!(engine.container(&ended).expect("ended").exit_code, Some(4));
        assert_eq!(exit_code(&engine, &quick).await, Some(6));
        engine.start_container(&waiting).await.expect("start");
        assert_eq!(exit_code(&engine, &waiting).await, Some(5));
        assert_eq!(exec(&engine, &shared, "hostname").await, "web\n");
        let mut more = script("more", "exec sleep 1000");
        more.security.pid = PidMode::Pod;
        let more = node.run(&engine, &pod, more).await;
        // Its shell may not have executed the program yet.
        let both = "for i in $(seq 100); do n=$(ps -o args | grep -c '^sleep 1000'); [ $n = 2 ] && break; sleep 0.05; done; echo $n";
        assert_eq!(exec(&engine, &more, both).await.trim(), "2");
        wait_until("the log is continued", TIMEOUT, || node.log("counter").lines().count() > lines + 10);
        assert_eq!(
            engine
                .run_sandbox({
                    let mut c = node.sandbox("web");
                    c.pid = PidMode::Pod;
                    c
                })
                .await
                .expect("existing"),
            pod
        );
        engine.stop_container(&counter, TIMEOUT).await.expect("stop");
        assert_eq!(engine.container(&counter).expect("counter").exit_code, Some(7));
        assert_gapless(&node.log("counter"));
        node.assert_nothing_left(engine).await;
    });
}

/// Returns the number of pidfds of this process.
fn pidfds() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("pidfd"))).count()
}

/// Returns the largest number of pidfds at any time: waits for the exit of processes open them one after the other.
async fn most_pidfds(during: Duration) -> usize {
    let (begin, mut most) = (std::time::Instant::now(), 0);
    while begin.elapsed() < during {
        most = most.max(pidfds());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    most
}

#[test]
fn a_monitor_that_is_killed_is_replaced_and_nothing_is_lost() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let counter = node.run(&engine, &pod, script("counter", COUNT)).await;
        let waiting = engine.create_container(&pod, script("waiting", "exit 5")).await.expect("create");
        let mut settled = None;
        for round in 1..=3 {
            wait_until("the log is continued", TIMEOUT, || node.log("counter").lines().count() > 20 * round);
            let before = monitor_pid(&engine).await;
            kill_monitor(&engine).await;
            wait_for_new_monitor(&engine, before).await;
            match settled {
                None => settled = Some(most_pidfds(Duration::from_secs(1)).await),
                Some(settled) => wait_until("descriptors are closed", TIMEOUT, || pidfds() <= settled),
            }
        }
        assert_eq!(exec(&engine, &counter, "hostname").await, "web\n");
        engine.start_container(&waiting).await.expect("start");
        assert_eq!(exit_code(&engine, &waiting).await, Some(5));
        let new = node.run(&engine, &pod, container("new", &["hostname"])).await;
        assert_eq!(exit_code(&engine, &new).await, Some(0));
        assert!(node.log("new").ends_with("web\n"));
        engine.stop_container(&counter, TIMEOUT).await.expect("stop");
        assert_eq!(engine.container(&counter).expect("counter").exit_code, Some(7));
        assert!(assert_gapless(&node.log("counter")) > 60);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_without_its_network_namespace_is_kept_with_its_containers() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let ended = node.run(&engine, &pod, script("ended", "exit 4")).await;
        assert_eq!(exit_code(&engine, &ended).await, Some(4));
        drop(engine);
        // The state left behind by a daemon that is killed while it stops the pod.
        shell(&format!("umount -l {}/netns/{pod}", node.config.state_dir.display()));
        for start in 1..=3 {
            let engine = node.open().await;
            assert_eq!(engine.sandbox(&pod).expect("pod").state, SandboxState::NotReady, "start {start}");
            assert_eq!(engine.sandbox(&pod).expect("pod").config.name.name, "web", "start {start}");
            assert_eq!(engine.container(&ended).expect("ended").exit_code, Some(4));
        }
        let engine = node.open().await;
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_command_outlives_its_monitor() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let command = "touch /dev/shm/begun; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; echo late; exit 5";
        let command = ["sh", "-c", command].map(str::to_owned).to_vec();
        let running = tokio::spawn({
            let (engine, id) = (engine.clone(), id.clone());
            async move { engine.exec_sync(&id, command, TIMEOUT).await }
        });
        while exec(&engine, &id, "ls /dev/shm").await.trim() != "begun" {}
        let before = monitor_pid(&engine).await;
        kill_monitor(&engine).await;
        wait_for_new_monitor(&engine, before).await;
        exec(&engine, &id, "touch /dev/shm/go").await;
        let output = running.await.expect("no panic").expect("exec");
        assert_eq!((&output.stdout[..], output.exit_code), (&b"late\n"[..], 5));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn running_containers_are_recovered_after_both_died() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let counter = node.run(&engine, &pod, script("counter", COUNT)).await;
        let waiting = engine.create_container(&pod, script("waiting", "exit 5")).await.expect("create");
        let gone = node.run(&engine, &pod, script("gone", "exec sleep 1000")).await;
        wait_until("the log", TIMEOUT, || node.log("counter").lines().count() > 20);
        let pid = engine.container(&gone).expect("gone").pid.expect("pid");
        let monitor = monitor_pid(&engine).await.expect("pid");
        drop(engine);
        shell(&format!("kill -9 {monitor} {pid}"));
        wait_until("the monitor is gone", TIMEOUT, || {
            !std::path::Path::new(&format!("/proc/{monitor}/root/")).exists()
        });

        let engine = node.open().await;
        assert_eq!(engine.sandbox(&pod).expect("pod").state, SandboxState::Ready);
        assert_eq!(state(&engine, &counter), ContainerState::Running);
        // It became a child of this process, the next subreaper, which could collect its exit code.
        assert_eq!(exit_code(&engine, &gone).await, Some(137));
        assert_eq!(state(&engine, &waiting), ContainerState::Exited);
        assert_eq!(exec(&engine, &counter, "hostname").await, "web\n");
        let new = node.run(&engine, &pod, container("new", &["hostname"])).await;
        assert_eq!(exit_code(&engine, &new).await, Some(0));
        engine.stop_container(&counter, TIMEOUT).await.expect("stop");
        assert_gapless(&node.log("counter"));
        node.assert_nothing_left(engine).await;
    });
}

/// Returns a script that waits until `expected` containers in the PID namespace run their program, and prints their
/// number.
fn sleepers(expected: usize) -> String {
    let count = "n=$(ps -o args | grep -c '^sleep 1000')";
    format!("for i in $(seq 500); do {count}; [ $n -ge {expected} ] && break; sleep 0.01; done; echo $n")
}

#[test]
fn the_init_of_a_pod_is_recovered_after_both_died() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("web");
        config.pid = PidMode::Pod;
        let pod = engine.run_sandbox(config).await.expect("run");
        let shared = |name| {
            let mut shared = script(name, "exec sleep 1000");
            shared.security.pid = PidMode::Pod;
            shared
        };
        let one = node.run(&engine, &pod, shared("one")).await;
        let monitor = monitor_pid(&engine).await.expect("pid");
        drop(engine);
        shell(&format!("kill -9 {monitor}"));
        wait_until("the monitor is gone", TIMEOUT, || {
            !std::path::Path::new(&format!("/proc/{monitor}/root/")).exists()
        });

        let engine = node.open().await;
        assert_eq!(state(&engine, &one), ContainerState::Running);
        let two = node.run(&engine, &pod, shared("two")).await;
        assert_eq!(exec(&engine, &two, &sleepers(2)).await.trim(), "2");
        let second = monitor_pid(&engine).await;
        kill_monitor(&engine).await;
        wait_for_new_monitor(&engine, second).await;
        let three = node.run(&engine, &pod, shared("three")).await;
        assert_eq!(exec(&engine, &three, &sleepers(3)).await.trim(), "3");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_pod_whose_init_was_killed_gets_a_new_one() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("web");
        config.pid = PidMode::Pod;
        let pod = engine.run_sandbox(config).await.expect("run");
        for round in 0..5 {
            let mut shared = script(&format!("c{round}"), "exec sleep 1000");
            shared.security.pid = PidMode::Pod;
            // Immediately: the monitor's report of the exit may not have arrived yet.
            let container = node.run(&engine, &pod, shared).await;
            let pid = engine.container(&container).expect("container").pid.expect("pid");
            assert_eq!(exec(&engine, &container, "tr '\\0' '\\n' < /proc/1/cmdline").await.trim(), "/pod-init");
            // Kills the init process of the container's PID namespace.
            shell(&format!(
                "for p in /proc/[0-9]*; do [ \"$(readlink $p/ns/pid)\" = \"$(readlink /proc/{pid}/ns/pid)\" ] || continue; \
                 grep -q '^/pod-init' $p/cmdline && kill -9 ${{p#/proc/}}; done; true"
            ));
            if round % 2 == 0 {
                assert_eq!(exit_code(&engine, &container).await, Some(137));
            }
        }
        node.assert_nothing_left(engine).await;
    });
}

/// Returns the init process of the node's only pod with a shared PID namespace.
fn pod_init() -> Option<Pid> {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let is_init = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"/pod-init"));
    pids.find(is_init).and_then(Pid::from_raw)
}

#[test]
fn an_init_that_dies_while_a_container_is_created_is_replaced() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut config = node.sandbox("web");
        config.pid = PidMode::Pod;
        let pod = engine.run_sandbox(config).await.expect("run");
        let shared = |name: &str| {
            let mut shared = script(name, "exec sleep 1000");
            shared.security.pid = PidMode::Pod;
            shared
        };
        let first = engine.create_container(&pod, shared("first")).await.expect("create");
        for round in 0..15 {
            let init = pod_init();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(600 * round));
                init.map(|init| kill_process(init, Signal::KILL));
            });
            let created = engine.create_container(&pod, shared(&format!("c{round}"))).await;
            killer.join().expect("killed");
            engine.remove_container(&created.unwrap_or_else(|e| panic!("round {round}: {e}"))).await.expect("remove");
        }
        engine.remove_container(&first).await.expect("remove");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_state_directory_has_one_daemon_and_no_records_of_another_boot() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let second = Engine::open(node.config.clone()).await.err().expect("only one daemon per directory");
        assert!(second.message.contains("another daemon"), "{second}");
        engine.run_sandbox(node.sandbox("web")).await.expect("run");
        drop(engine);
        std::fs::write(node.config.state_dir.join("boot_id"), "another").expect("boot id");
        let engine = node.open().await;
        assert!(engine.sandboxes().is_empty() && engine.containers().is_empty());
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_running_container_survives_a_record_that_could_not_be_written() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let running = node.run(&engine, &pod, script("runs", "exec sleep 1000")).await;
        let created = engine.create_container(&pod, script("waits", "exec sleep 1000")).await.expect("create");
        let pid = engine.container(&running).expect("runs").pid;
        let monitor = monitor_pid(&engine).await.expect("pid");
        drop(engine);
        shell(&format!("kill -9 {monitor}"));
        wait_until("the monitor is gone", TIMEOUT, || {
            !std::path::Path::new(&format!("/proc/{monitor}/root/")).exists()
        });
        // The state left behind by a full tmpfs: the status from before the start.
        let status = node.config.state_dir.join("container").join(running.as_str()).join("status.json");
        let text = std::fs::read_to_string(&status).expect("status");
        let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(record["value"]["phase"], "Running");
        record["value"]["phase"] = "Created".into();
        record["value"]["started_at"] = 0.into();
        std::fs::write(&status, record.to_string()).expect("status");

        let engine = node.open().await;
        assert_eq!(state(&engine, &running), ContainerState::Running);
        assert_eq!(engine.container(&running).expect("runs").pid, pid);
        assert_eq!(exec(&engine, &running, "hostname").await, "web\n");
        assert_eq!(state(&engine, &created), ContainerState::Exited);
        engine.stop_container(&running, Duration::ZERO).await.expect("stop");
        assert_eq!(engine.container(&running).expect("runs").exit_code, Some(137));
        node.assert_nothing_left(engine).await;
    });
}
