//! Exec and attach sessions: streams, terminals, deadlines.

mod node;

use std::time::{Duration, Instant};

use node::{TIMEOUT, container, exec, exit_code, on_a_node, script};
use pod::{ErrorKind, ExecRequest, Session, UserChoice};
use testbed::wait_until;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

fn request(command: &str) -> ExecRequest {
    ExecRequest {
        env: vec![],
        working_dir: None,
        user: UserChoice::Image,
        command: if command.is_empty() { vec![] } else { ["sh", "-c", command].map(str::to_owned).to_vec() },
        tty: false,
        stdin: true,
        stdout: true,
        stderr: true,
        size: None,
    }
}

/// Reads the output to its end.
async fn read(session: &mut Session) -> String {
    let mut text = Vec::new();
    let stream = session.stdout.as_mut().expect("stdout");
    timeout(TIMEOUT, stream.read_to_end(&mut text)).await.expect("the stream ends in time").expect("read");
    String::from_utf8(text).expect("text")
}

#[test]
fn a_command_exits_in_time_or_is_killed_with_all_it_started() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let run = async |text: &str, limit| {
            engine.exec_sync(&id, ["sh", "-c", text].map(str::to_owned).to_vec(), limit).await
        };
        let output = run("echo out; echo err >&2; exit 3", TIMEOUT).await.expect("exec");
        assert_eq!((&output.stdout[..], &output.stderr[..], output.exit_code), (&b"out\n"[..], &b"err\n"[..], 3));

        // A background process keeps the pipe open.
        let begin = Instant::now();
        let output = run("sleep 500 & echo done", Duration::ZERO).await.expect("exec");
        assert_eq!(output.stdout, b"done\n");
        assert!(begin.elapsed() < TIMEOUT);
        let timed_out = run("sleep 600 & sleep 700", Duration::from_millis(200)).await.expect_err("timed out");
        assert_eq!(timed_out.kind, ErrorKind::DeadlineExceeded);
        assert_eq!(exec(&engine, &id, "ps -o args | grep -c '^sleep [67]00'; true").await.trim(), "0");

        let output = run("head -c 20000000 /dev/zero", TIMEOUT).await.expect("exec");
        assert_eq!((output.stdout.len(), output.exit_code), (16 << 20, 0));
        let missing = engine.exec_sync(&id, vec!["nope".into()], TIMEOUT).await.expect_err("missing");
        assert!(missing.message.contains("nope"), "{missing}");

        // The command of a caller that disconnects is killed.
        timeout(Duration::from_millis(300), run("sleep 800", TIMEOUT)).await.expect_err("disconnected");
        let begin = Instant::now();
        while exec(&engine, &id, "ps -o args | grep -c '^sleep 800'; true").await.trim() != "0" {
            assert!(begin.elapsed() < TIMEOUT, "the command is still running");
        }
        engine.stop_container(&id, Duration::ZERO).await.expect("stop");
        let refused = run("true", TIMEOUT).await.expect_err("the container exited");
        assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn streams_and_terminals_work_in_both_directions() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let mut session = engine.exec(&id, request("cat; exit 9")).await.expect("exec");
        let mut stdin = session.stdin.take().expect("stdin");
        stdin.write_all(b"there and back\n").await.expect("write");
        stdin.shutdown().await.expect("shutdown");
        assert_eq!(read(&mut session).await, "there and back\n");
        assert_eq!(session.control.wait().await.expect("exit").code, 9);

        let mut terminal = request("stty size; read x; stty size; echo got $x");
        (terminal.tty, terminal.size) = (true, Some(pod::oci::TerminalSize { width: 100, height: 40 }));
        let mut session = engine.exec(&id, terminal).await.expect("exec");
        let mut first = [0; 8];
        session.stdout.as_mut().expect("stdout").read_exact(&mut first).await.expect("read");
        assert_eq!(&first, b"40 100\r\n");
        session.control.resize(pod::oci::TerminalSize { width: 90, height: 30 }).await.expect("resize");
        session.stdin.as_mut().expect("stdin").write_all(b"it\n").await.expect("write");
        assert!(read(&mut session).await.ends_with("30 90\r\ngot it\r\n"));
        assert_eq!(session.control.wait().await.expect("exit").code, 0);
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn the_input_of_an_attached_client_ends_that_of_the_container() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let mut config = container("once", &["cat"]);
        (config.stdin, config.stdin_once) = (true, true);
        let once = node.run(&engine, &pod, config).await;
        let mut session = engine.attach(&once, request("")).await.expect("attach");
        let mut stdin = session.stdin.take().expect("stdin");
        stdin.write_all(b"line\n").await.expect("write");
        drop(stdin);
        assert_eq!(read(&mut session).await, "line\n");
        assert_eq!(session.control.wait().await.expect("exit").code, 0);
        wait_until("the log", TIMEOUT, || node.log("once").ends_with("stdout F line\n"));

        let mut config = script("tty", "read x; echo got $x; exit 2");
        (config.stdin, config.tty) = (true, true);
        let tty = node.run(&engine, &pod, config).await;
        let mut session = engine.attach(&tty, request("")).await.expect("attach");
        session.stdin.as_mut().expect("stdin").write_all(b"it\n").await.expect("write");
        assert!(read(&mut session).await.contains("got it"));
        assert_eq!(exit_code(&engine, &tty).await, Some(2));
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn an_early_stop_signal_is_not_lost() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("p")).await.expect("run");
        let slow = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; trap 'exit 7' TERM; while :; do sleep 0.01; done";
        let id = node.run(&engine, &pod, script("slow", slow)).await;
        let begin = Instant::now();
        engine.stop_container(&id, Duration::from_secs(600)).await.expect("stop");
        assert!(begin.elapsed() < TIMEOUT);
        assert_eq!(engine.container(&id).expect("slow").exit_code, Some(7));
        node.assert_nothing_left(engine).await;
    });
}
