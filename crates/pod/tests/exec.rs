//! Commands in containers, and what they must not be able to do to whoever asked for them.

mod node;

use std::{fs, time::Duration};

use cgroup::{Group, GroupPath, Hierarchies};
use node::{PATIENCE, eventually, exec, kill_monitor, on_a_node, script, shell};
use pod::{Engine, ErrorKind, ExecOutput, ExecRequest, UserChoice};

const SOON: Duration = Duration::from_millis(500);

fn command(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

async fn output(engine: &Engine, id: &str, text: &str) -> ExecOutput {
    engine.exec_sync(id, command(text), PATIENCE).await.expect(text)
}

fn runs(line: &str) -> bool {
    shell("ps -eo args").lines().any(|args| args == line)
}

/// How many groups of commands the container has.
fn groups(engine: &Engine, id: &str) -> usize {
    let tree = fs::read_dir("/sys/fs/cgroup/unified").map(|_| "/sys/fs/cgroup/unified").unwrap_or("/sys/fs/cgroup");
    let below = format!("{tree}{}", group(engine, id).path().as_str());
    fs::read_dir(below).expect("group").flatten().filter(|entry| entry.path().is_dir()).count()
}

/// The container's group in every tree.
fn group(engine: &Engine, id: &str) -> Group {
    let path = engine.inspect_container(id).expect("container")["cgroup"].as_str().expect("its cgroup").to_owned();
    Group::open(&Hierarchies::open().expect("trees"), &GroupPath::parse(&path).expect("path")).expect("group")
}

#[test]
fn what_a_command_leaves_behind_does_not_hold_its_answer() {
    on_a_node("what_a_command_leaves_behind_does_not_hold_its_answer", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        // It has the pipes, and a session of its own.
        let said = output(&engine, &id, "setsid sleep 1001 & echo done").await;
        assert_eq!((said.exit_code, said.stdout.as_slice()), (0, &b"done\n"[..]));
        assert!(runs("sleep 1001"), "what it left lives on");
        engine.remove_container(&id).await.expect("remove");
        assert!(!runs("sleep 1001"), "as long as the container");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn at_the_deadline_nothing_of_a_command_is_left() {
    on_a_node("at_the_deadline_nothing_of_a_command_is_left", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        // A first process that reaps, as in any container that has such commands run in it.
        let id = node.run(&engine, &pod, script("c", "while :; do sleep 0.05; done")).await;
        for round in 0..5 {
            let text = "trap '' TERM INT HUP; setsid sh -c 'sleep 1002 & sleep 1003' & sleep 1004";
            let error = engine.exec_sync(&id, command(text), SOON).await.expect_err("late");
            assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{round}: {error}");
            assert!(error.message.contains("killed with all it started"), "{error}");
            for left in ["sleep 1002", "sleep 1003", "sleep 1004"] {
                assert!(!runs(left), "{round}: {left}");
            }
        }
        eventually("no zombie is left", || !shell("ps -eo stat,comm").lines().any(|line| line.starts_with('Z')));
        assert_eq!(groups(&engine, &id), 0, "groups of commands");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn output_is_whole_to_its_bound_and_bounded_beyond() {
    on_a_node("output_is_whole_to_its_bound_and_bounded_beyond", |mut node| async move {
        node.config.exec_sync_output_max = 1 << 20;
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        for _ in 0..20 {
            // The last writes are in the pipe when the command is gone; a daemon of its own holds it open.
            let said = output(&engine, &id, "sleep 0.3 & head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2").await;
            assert_eq!((said.stdout.len(), said.stderr.len(), said.exit_code), (60000, 60000, 0));
        }
        let said = output(&engine, &id, "head -c 5000000 /dev/zero; exit 3").await;
        assert_eq!((said.stdout.len(), said.exit_code), (1 << 20, 3));
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_frozen_container_does_not_hold_the_answer() {
    on_a_node("a_frozen_container_does_not_hold_the_answer", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let group = group(&engine, &id);
        group.freeze().expect("freeze");
        let error = engine.exec_sync(&id, command("touch /dev/shm/ran"), SOON).await.expect_err("frozen");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        assert_eq!(engine.containers().len(), 1);
        group.thaw().expect("thaw");
        // What nobody waits for any more does not run late.
        assert_eq!(exec(&engine, &id, "sleep 0.2; ls /dev/shm").await, "");
        // One that runs when the container is frozen.
        let running = {
            let (engine, id) = (engine.clone(), id.clone());
            tokio::spawn(async move { engine.exec_sync(&id, command("touch /dev/shm/on; sleep 1005"), 4 * SOON).await })
        };
        eventually("it runs", || runs("sleep 1005"));
        group.freeze().expect("freeze");
        let error = running.await.expect("task").expect_err("frozen");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        group.thaw().expect("thaw");
        eventually("it ended", || !runs("sleep 1005"));
        // Frozen again, it can be stopped.
        group.freeze().expect("freeze");
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_command_whose_monitor_died_ends_like_any_other() {
    on_a_node("a_command_whose_monitor_died_ends_like_any_other", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "while :; do sleep 0.05; done")).await;
        let late = {
            let (engine, id) = (engine.clone(), id.clone());
            tokio::spawn(
                async move { engine.exec_sync(&id, command("setsid sleep 1011 & sleep 1012"), 6 * SOON).await },
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
        let left = engine.exec(&id, streams("setsid sleep 1013 & sleep 1014")).await.expect("exec");
        let done =
            engine.exec(&id, streams("until [ -e /dev/shm/go ]; do sleep 0.05; done; exit 7")).await.expect("exec");
        eventually("they run", || (1011..=1014).all(|n| runs(&format!("sleep {n}"))));
        kill_monitor(&engine).await;
        // By itself, with its code; its client's going; its deadline.
        // Until another has taken over, no command can begin.
        while engine.exec_sync(&id, command("touch /dev/shm/go"), PATIENCE).await.is_err() {}
        assert_eq!(done.control.wait().await.expect("end").code, 7);
        drop(left);
        eventually("nobody is left", || !runs("sleep 1013") && !runs("sleep 1014"));
        let error = late.await.expect("task").expect_err("late");
        assert!(error.message.contains("killed with all it started"), "{error}");
        assert!(!runs("sleep 1011") && !runs("sleep 1012"));
        eventually("no group is left", || groups(&engine, &id) == 0);
        node.nothing_is_left(engine).await;
    });
}

#[test]
fn a_command_that_takes_all_memory_says_so() {
    on_a_node("a_command_that_takes_all_memory_says_so", |node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        let memory = pod::oci::Memory { limit: Some(32 << 20), swap: Some(32 << 20), ..Default::default() };
        config.resources.memory = Some(memory);
        let id = node.run(&engine, &pod, config).await;
        // tail keeps what has no line end.
        let said = engine.exec_sync(&id, vec!["tail".into(), "/dev/zero".into()], PATIENCE).await.expect("exec");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.exit_code == 137 && words.contains("out of memory"), "{}: {words}", said.exit_code);
        let why = engine.why(&id).expect("why");
        let oom = why[0].oom.as_ref().expect("the group tells");
        assert_eq!(oom.limit, pod::OomLimit::Container, "{oom:?}");
        node.nothing_is_left(engine).await;
    });
}
