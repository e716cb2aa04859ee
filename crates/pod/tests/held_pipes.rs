//! Processes of a container that hold its pipes inside the kernel: splice(2) between a pipe and a socket sleeps with
//! the pipe's mutex held. Every call of the daemon on that pipe then blocks, which must delay neither its answers nor
//! other containers.

mod node;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use node::{Node, TIMEOUT, container, exec, exit_code, on_a_node, script};
use pod::{
    ContainerConfig, ContainerId, Engine, Error, ErrorKind, ExecOutput, ExecRequest, Propagation, UserChoice, Volume,
};
use testbed::{shell, wait_until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Socket that `holder serve` listens on.
const SOCKET: &str = "/dev/shm/holder";
/// Limit of an answer that does not wait for the holder; well below the minute after which a holder exits by itself.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Number of blocked calls after which a container is refused further commands.
const HELD: usize = 8;

/// Adds `/payload/holder` to a container.
fn with_holder(node: &Node, mut config: ContainerConfig) -> ContainerConfig {
    let program = node.dir.join("payload");
    if !program.exists() {
        fs::create_dir(&program).expect("directory");
        testbed::compile("crates/pod/tests/payload/holder.c", &program.join("holder"));
    }
    config.volumes.push(Volume {
        container_path: "/payload".into(),
        host_path: program,
        image: None,
        options: vec![],
        uid_mappings: vec![],
        gid_mappings: vec![],
        readonly: true,
        recursive_readonly: false,
        propagation: Propagation::Private,
        selinux_relabel: false,
    });
    config
}

fn holder(arguments: &[&str]) -> Vec<String> {
    ["/payload/holder"].iter().chain(arguments).map(|word| (*word).to_owned()).collect()
}

/// Runs `holder` in a container. Returns the outcome and its duration.
async fn hold(
    engine: &Engine,
    id: &ContainerId,
    arguments: &[&str],
    limit: Duration,
) -> (Result<ExecOutput, Error>, Duration) {
    let begin = Instant::now();
    let outcome = engine.exec_sync(id, holder(arguments), limit).await;
    (outcome, begin.elapsed())
}

/// Returns the number of threads of this process in uninterruptible sleep, and of all threads.
fn threads() -> (usize, usize) {
    let all: Vec<_> = fs::read_dir("/proc/self/task").expect("tasks").flatten().collect();
    let state = |task: &fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap_or_default();
    let blocked = all.iter().filter(|task| state(task).contains(") D "));
    (blocked.count(), all.len())
}

fn streams(command: Vec<String>) -> ExecRequest {
    ExecRequest {
        env: vec![],
        working_dir: None,
        user: UserChoice::Image,
        command,
        tty: false,
        stdin: true,
        stdout: true,
        stderr: true,
        size: None,
    }
}

#[test]
fn a_command_that_holds_its_output_is_answered_at_its_deadline() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, with_holder(&node, script("c", "while :; do sleep 0.05; done"))).await;
        for round in 0..5 {
            let (outcome, took) = hold(&engine, &id, &["stdout"], Duration::from_secs(1)).await;
            let error = outcome.expect_err("the pipe is held");
            assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{round}: {error}");
            assert!(error.message.contains("killed with all it started"), "{error}");
            assert!(took < AT_ONCE, "{round}: {took:?}");
        }
        assert_eq!(exec(&engine, &id, "echo on").await, "on\n");
        wait_until("no thread is blocked", TIMEOUT, || threads().0 == 0);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn commands_that_hold_their_output_delay_no_other_container() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, with_holder(&node, script("c", "while :; do sleep 0.05; done"))).await;
        let other = node.run(&engine, &pod, script("other", "exec sleep 1000")).await;
        let held = {
            let (engine, id) = (engine.clone(), id.clone());
            let held = async move { join_all((0..HELD).map(|_| hold(&engine, &id, &["stdout"], AT_ONCE))).await };
            tokio::spawn(held)
        };
        let begin = Instant::now();
        let mut blocked = 0;
        while !held.is_finished() {
            assert!(begin.elapsed() < 3 * AT_ONCE, "the requests are answered");
            let sent_at = Instant::now();
            assert_eq!(exec(&engine, &other, "echo on").await, "on\n");
            assert!(sent_at.elapsed() < Duration::from_secs(1), "{:?}", sent_at.elapsed());
            blocked = blocked.max(threads().0);
        }
        for (outcome, took) in held.await.expect("task") {
            assert_eq!(outcome.expect_err("the pipe is held").kind, ErrorKind::DeadlineExceeded);
            assert!(took < 2 * AT_ONCE, "{took:?}");
        }
        assert!(blocked >= HELD, "{blocked} threads were blocked: the pipes were not held");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_container_that_holds_pipes_is_refused_more_commands_and_can_be_removed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let config = with_holder(&node, container("c", &["/payload/holder", "serve", SOCKET]));
        let id = node.run(&engine, &pod, config).await;
        let other = node.run(&engine, &pod, script("other", "exec sleep 1000")).await;
        exec(&engine, &id, &format!("until [ -e {SOCKET} ]; do sleep 0.01; done")).await;
        let before = threads().1;
        for round in 0..HELD {
            // The command exits by itself, and the process that it passed its output to holds the pipe.
            let (outcome, took) = hold(&engine, &id, &["pass", SOCKET], TIMEOUT).await;
            let output = outcome.expect("the command exited");
            assert_eq!(output.exit_code, 0, "{round}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(took < AT_ONCE, "{round}: {took:?}");
            let sent_at = Instant::now();
            assert_eq!(exec(&engine, &other, "echo on").await, "on\n");
            assert!(sent_at.elapsed() < Duration::from_secs(1), "{round}: {:?}", sent_at.elapsed());
        }
        assert!(threads().0 >= HELD, "{:?}: the pipes were not held", threads());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(engine.blocked_pipe_calls() >= HELD, "{}", engine.blocked_pipe_calls());
        let (outcome, took) = hold(&engine, &id, &["pass", SOCKET], TIMEOUT).await;
        let error = outcome.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
        assert!(error.message.contains("the pipes of 8 earlier exec sessions are held inside the kernel"), "{error}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        for outcome in [engine.exec(&id, streams(holder(&[]))).await, engine.attach(&id, streams(vec![])).await] {
            assert_eq!(outcome.map(drop).expect_err("refused").kind, ErrorKind::FailedPrecondition);
        }
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        exit_code(&engine, &id).await;
        wait_until("all blocked threads have returned", TIMEOUT, || threads().0 == 0 && threads().1 <= before + HELD);
        wait_until("no call is blocked", TIMEOUT, || engine.blocked_pipe_calls() == 0);
        engine.remove_container(&id).await.expect("remove");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_session_whose_input_is_held_ends_with_its_client() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, with_holder(&node, script("c", "while :; do sleep 0.05; done"))).await;
        let other = node.run(&engine, &pod, script("other", "exec sleep 1000")).await;
        for round in 0..3 {
            let session = engine.exec(&id, streams(holder(&["stdin"]))).await.expect("exec");
            let pod::Session { stdin, mut stdout, control, .. } = session;
            let mut stdin = stdin.expect("its input");
            // More than the program reads, so that the rest waits in the pipe.
            let write = async {
                for _ in 0..100 {
                    stdin.write_all(b"a line\n").await?;
                    stdin.flush().await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                std::io::Result::Ok(())
            };
            assert!(timeout(Duration::from_secs(2), write).await.is_err(), "{round}: its input is not held");
            assert!(threads().0 > 0, "{round}: its input is not held");
            let sent_at = Instant::now();
            assert_eq!(exec(&engine, &other, "echo on").await, "on\n");
            assert!(sent_at.elapsed() < Duration::from_secs(1), "{round}: {:?}", sent_at.elapsed());
            // The client disconnects: both are dropped on an async worker, which they must not block.
            let dropped_at = Instant::now();
            tokio::spawn(async move { drop((stdin, control)) }).await.expect("task");
            let mut rest = Vec::new();
            let stdout = stdout.as_mut().expect("its output");
            timeout(AT_ONCE, stdout.read_to_end(&mut rest)).await.expect("the command was killed").expect("read");
            assert!(dropped_at.elapsed() < AT_ONCE, "{round}: {:?}", dropped_at.elapsed());
            wait_until("no thread is blocked", TIMEOUT, || threads().0 == 0);
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn an_attached_client_is_refused_while_the_containers_input_is_held() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let mut config = with_holder(&node, container("c", &["/payload/holder", "stdin"]));
        config.stdin = true;
        let id = node.run(&engine, &pod, config).await;
        let other = node.run(&engine, &pod, script("other", "exec sleep 1000")).await;
        let session = engine.attach(&id, streams(vec![])).await.expect("attach");
        let mut stdin = session.stdin.expect("its input");
        stdin.write_all(b"a line\n").await.expect("write");
        stdin.flush().await.expect("write");
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Even open(2) of the FIFO blocks.
        let sent_at = Instant::now();
        let again = engine.attach(&id, streams(vec![])).await;
        assert_eq!(again.map(drop).expect_err("the pipe is held").kind, ErrorKind::FailedPrecondition);
        assert!(sent_at.elapsed() < AT_ONCE, "{:?}", sent_at.elapsed());
        tokio::spawn(async move { drop(stdin) }).await.expect("task");
        let sent_at = Instant::now();
        assert_eq!(exec(&engine, &other, "echo on").await, "on\n");
        assert!(sent_at.elapsed() < Duration::from_secs(1), "{:?}", sent_at.elapsed());
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        wait_until("no thread is blocked", TIMEOUT, || threads().0 == 0);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_daemon_and_a_monitor_that_died_are_replaced_while_output_is_held() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, with_holder(&node, container("c", &["/payload/holder", "stdout"]))).await;
        let other = node.run(&engine, &pod, script("other", "exec sleep 1000")).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let monitor = engine.status().await.info.monitor.expect("the monitor").pid;
        drop(engine);
        shell(&format!("kill -9 {monitor}"));
        wait_until("the monitor is gone", TIMEOUT, || !Path::new(&format!("/proc/{monitor}/root/")).exists());
        // The new daemon opens the FIFOs again, and open(2) waits for the mutex, too.
        let begin = Instant::now();
        let engine = node.open().await;
        assert!(begin.elapsed() < 4 * AT_ONCE, "{:?}", begin.elapsed());
        assert_eq!(node::state(&engine, &id), pod::ContainerState::Running);
        assert_eq!(exec(&engine, &other, "echo on").await, "on\n");
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        wait_until("no thread is blocked", TIMEOUT, || threads().0 == 0);
        node.assert_nothing_left(engine).await;
    });
}
