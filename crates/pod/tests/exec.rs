//! Commands in containers, and how they must not be able to harm the daemon or its clients.

mod node;

use std::{fs, time::Duration};

use cgroup::{Group, GroupPath, Hierarchies};
use node::{TIMEOUT, exec, kill_monitor, on_a_node, script};
use pod::{ContainerId, Engine, ErrorKind, ExecOutput, ExecRequest, UserChoice};
use testbed::{shell, wait_until};

const SHORT: Duration = Duration::from_millis(500);

fn command(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

async fn output(engine: &Engine, id: &ContainerId, text: &str) -> ExecOutput {
    engine.exec_sync(id, command(text), TIMEOUT).await.expect(text)
}

fn runs(line: &str) -> bool {
    shell("ps -eo args").lines().any(|args| args == line)
}

/// Returns the number of cgroups of commands that a container has.
fn command_groups(engine: &Engine, id: &ContainerId) -> usize {
    let tree = fs::read_dir("/sys/fs/cgroup/unified").map(|_| "/sys/fs/cgroup/unified").unwrap_or("/sys/fs/cgroup");
    let below = format!("{tree}{}", group(engine, id).path().as_str());
    fs::read_dir(below).expect("group").flatten().filter(|entry| entry.path().is_dir()).count()
}

/// Opens the cgroup of a container in every hierarchy.
fn group(engine: &Engine, id: &ContainerId) -> Group {
    let path = engine.inspect_container(id).expect("container")["cgroup"].as_str().expect("its cgroup").to_owned();
    Group::open(&Hierarchies::open().expect("trees"), &GroupPath::parse(&path).expect("path")).expect("group")
}

#[test]
fn processes_left_behind_by_a_command_do_not_delay_its_answer() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        // The background process has the pipes and its own session.
        let command_output = output(&engine, &id, "setsid sleep 1001 & echo done").await;
        assert_eq!((command_output.exit_code, command_output.stdout.as_slice()), (0, &b"done\n"[..]));
        assert!(runs("sleep 1001"), "the background process keeps running");
        engine.remove_container(&id).await.expect("remove");
        assert!(!runs("sleep 1001"), "until the container is removed");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn at_the_deadline_every_process_of_a_command_is_killed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        // The init process reaps orphans, as in any container in which such commands are run.
        let id = node.run(&engine, &pod, script("c", "while :; do sleep 0.05; done")).await;
        for round in 0..5 {
            let text = "trap '' TERM INT HUP; setsid sh -c 'sleep 1002 & sleep 1003' & sleep 1004";
            let error = engine.exec_sync(&id, command(text), SHORT).await.expect_err("timed out");
            assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{round}: {error}");
            assert!(error.message.contains("killed with all it started"), "{error}");
            for command in ["sleep 1002", "sleep 1003", "sleep 1004"] {
                assert!(!runs(command), "{round}: {command}");
            }
        }
        wait_until("no zombie is left", TIMEOUT, || {
            !shell("ps -eo stat,comm").lines().any(|line| line.starts_with('Z'))
        });
        assert_eq!(command_groups(&engine, &id), 0, "groups of commands");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn output_is_complete_up_to_its_limit() {
    on_a_node(|mut node| async move {
        node.config.exec_sync_output_max = 1 << 20;
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        for _ in 0..20 {
            // The last writes are still in the pipe when the command exited; a background process keeps it open.
            let command_output =
                output(&engine, &id, "sleep 0.3 & head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2").await;
            assert_eq!(
                (command_output.stdout.len(), command_output.stderr.len(), command_output.exit_code),
                (60000, 60000, 0)
            );
        }
        let command_output = output(&engine, &id, "head -c 5000000 /dev/zero; exit 3").await;
        assert_eq!((command_output.stdout.len(), command_output.exit_code), (1 << 20, 3));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_frozen_container_does_not_delay_the_answer() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let group = group(&engine, &id);
        group.freeze().expect("freeze");
        let error = engine.exec_sync(&id, command("touch /dev/shm/ran"), SHORT).await.expect_err("frozen");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        assert_eq!(engine.containers().len(), 1);
        group.thaw().expect("thaw");
        // A command that no client waits for any longer does not run after the thaw.
        assert_eq!(exec(&engine, &id, "sleep 0.2; ls /dev/shm").await, "");
        // A command that is running when the container is frozen.
        let running = {
            let (engine, id) = (engine.clone(), id.clone());
            tokio::spawn(
                async move { engine.exec_sync(&id, command("touch /dev/shm/on; sleep 1005"), 4 * SHORT).await },
            )
        };
        wait_until("the command runs", TIMEOUT, || runs("sleep 1005"));
        group.freeze().expect("freeze");
        let error = running.await.expect("task").expect_err("frozen");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        group.thaw().expect("thaw");
        wait_until("the command was killed", TIMEOUT, || !runs("sleep 1005"));
        // A frozen container can be stopped.
        group.freeze().expect("freeze");
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_command_whose_monitor_died_exits_like_any_other() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "while :; do sleep 0.05; done")).await;
        let timed_out = {
            let (engine, id) = (engine.clone(), id.clone());
            tokio::spawn(
                async move { engine.exec_sync(&id, command("setsid sleep 1011 & sleep 1012"), 6 * SHORT).await },
            )
        };
        let streams = |text: &str| ExecRequest {
            env: vec![],
            working_dir: None,
            user: UserChoice::Image,
            command: command(text),
            tty: false,
            stdin: false,
            stdout: true,
            stderr: false,
            size: None,
        };
        let abandoned = engine.exec(&id, streams("setsid sleep 1013 & sleep 1014")).await.expect("exec");
        let completed =
            engine.exec(&id, streams("until [ -e /dev/shm/go ]; do sleep 0.05; done; exit 7")).await.expect("exec");
        wait_until("all commands run", TIMEOUT, || (1011..=1014).all(|n| runs(&format!("sleep {n}"))));
        kill_monitor(&engine).await;
        // No command can start until a new monitor has taken over. Then `completed` exits by itself with its exit code,
        // `abandoned` is killed when its client disconnects, and `timed_out` at its deadline.
        while engine.exec_sync(&id, command("touch /dev/shm/go"), TIMEOUT).await.is_err() {}
        assert_eq!(completed.control.wait().await.expect("exit").code, 7);
        drop(abandoned);
        wait_until("the command without a client was killed", TIMEOUT, || !runs("sleep 1013") && !runs("sleep 1014"));
        let error = timed_out.await.expect("task").expect_err("timed out");
        assert!(error.message.contains("killed with all it started"), "{error}");
        assert!(!runs("sleep 1011") && !runs("sleep 1012"));
        wait_until("no cgroup is left", TIMEOUT, || command_groups(&engine, &id) == 0);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn running_out_of_memory_is_reported_in_the_error_output() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        let memory = pod::oci::Memory { limit: Some(32 << 20), swap: Some(32 << 20), ..Default::default() };
        config.resources.memory = Some(memory);
        let id = node.run(&engine, &pod, config).await;
        // tail buffers input without a newline.
        let command_output =
            engine.exec_sync(&id, vec!["tail".into(), "/dev/zero".into()], TIMEOUT).await.expect("exec");
        let error_output = String::from_utf8_lossy(&command_output.stderr).into_owned();
        assert!(
            command_output.exit_code == 137 && error_output.contains("out of memory"),
            "{}: {error_output}",
            command_output.exit_code
        );
        let why = engine.why(id.as_str()).expect("why");
        let oom = why[0].oom.as_ref().expect("the cgroup reports it");
        assert_eq!(oom.limit, pod::OomLimit::Container, "{oom:?}");
        node.assert_nothing_left(engine).await;
    });
}
