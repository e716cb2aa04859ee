//! A process that keeps a container's pipe locked (splice(2) from an empty socket, or to a full one): the log of that
//! container waits for it and no others do, and no line is lost or doubled.

mod node;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    time::{Duration, Instant},
};

use monitor_api::{Attachments, HoldingState, KillScope, Request, Role, Target};
use node::Node;
use node::lock::{COUNTER, Lock, REPORT, TIME_LIMIT, duplicate, finish, kill_and_delete, run_with_output};
use testbed::{holds_within, wait_until};

/// Locks the standard output of a container so that its log writer is blocked. Each attempt writes one `x`.
fn block_writer(node: &Node, output: &File) -> (Lock, usize) {
    let reports = || node.diagnostics().matches(REPORT).count();
    let before = reports();
    for tries in 1..=20 {
        let lock = Lock::output(duplicate(output), "x");
        if holds_within(Duration::from_secs(5), || reports() > before) {
            return (lock, tries);
        }
        // The log writer read the pipe before it was locked.
        lock.unlock();
    }
    panic!("its writer was never blocked: {}", node.diagnostics());
}

/// Checks that the log of a counter grows, and that lifecycle operations and an exec are not delayed.
fn bystanders(node: &mut Node, round: &str, counter: &str) {
    let begin = Instant::now();
    let before = node.log(counter).len();
    wait_until(&format!("{round}: the log of {counter} grows"), TIME_LIMIT, || node.log(counter).len() >= before + 20);
    let id = format!("{round}-exec");
    node.exec(counter, &id, &["true"]).expect("exec");
    assert_eq!(node.wait_exec(&id).code, Some(0));
    let id = format!("{round}-life");
    node.shell(&id, "echo here; sleep 1000");
    node.wait_for_entry(&id, "stdout F here");
    node.kill(Target::Container(id.clone()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait(&id).signal, Some(9));
    node.delete(&id);
    assert!(begin.elapsed() < TIME_LIMIT, "{round}: {:?}", begin.elapsed());
}

/// Checks that the lines of a counter are in order, each once.
fn check_counter(node: &Node, id: &str) {
    let expected: Vec<String> = (1..=node.log(id).len()).map(|n| format!("stdout F {n}")).collect();
    assert_eq!(node.log(id), expected);
}

#[test]
fn a_locked_output_delays_only_its_own_log() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) =
        run_with_output(&mut node, "locked", "while [ ! -e /tmp/go ]; do sleep 0.01; done; echo on; sleep 1000");
    let (lock, tries) = block_writer(&node, &output);
    bystanders(&mut node, "locked", "counter");
    assert!(node.ping().stuck.is_empty(), "no file system hangs");
    lock.unlock();
    let text = "x".repeat(tries);
    let entries = |node: &Node| node.log("locked").iter().map(|line| line[9..].to_owned()).collect::<String>();
    wait_until("its output is logged", TIME_LIMIT, || entries(&node) == text);
    // It has a dedicated log writer now, so a further lock affects no other container.
    let reports = node.diagnostics().matches(REPORT).count();
    let second_lock = Lock::output(duplicate(&output), "y");
    bystanders(&mut node, "again", "counter");
    second_lock.unlock();
    assert_eq!(node.diagnostics().matches(REPORT).count(), reports);
    node.wait_for_entry("locked", "stdout P y");
    assert_eq!(entries(&node), format!("{text}y"));
    std::fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    node.wait_for_entry("locked", "stdout F on");
    kill_and_delete(&mut node, "locked");
    kill_and_delete(&mut node, "counter");
    check_counter(&node, "counter");
    finish(node);
}

#[test]
fn a_container_with_a_locked_output_exits_and_is_deleted() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) = run_with_output(&mut node, "locked", "sleep 1000");
    let (lock, tries) = block_writer(&node, &output);
    let begin = Instant::now();
    kill_and_delete(&mut node, "locked");
    assert!(begin.elapsed() < TIME_LIMIT, "{:?}", begin.elapsed());
    bystanders(&mut node, "deleted", "counter");
    lock.unlock();
    wait_until("its output is logged", TIME_LIMIT, || {
        node.log("locked").iter().map(|line| line[9..].len()).sum::<usize>() >= tries
    });
    kill_and_delete(&mut node, "counter");
    check_counter(&node, "counter");
    finish(node);
}

#[test]
fn a_locked_pipe_is_closed_without_the_monitor() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    for round in 0..2 {
        let id = format!("locked-{round}");
        let (container, output) = run_with_output(&mut node, &id, "sleep 1000");
        let lock = Lock::output(output, "");
        // The copies of the daemon are closed too, so the log writer performs the last close.
        drop(container);
        kill_and_delete(&mut node, &id);
        std::thread::sleep(Duration::from_millis(500));
        bystanders(&mut node, &format!("closed-{round}"), "counter");
        lock.unlock();
    }
    kill_and_delete(&mut node, "counter");
    check_counter(&node, "counter");
    finish(node);
}

#[test]
fn a_locked_input_is_closed_without_the_monitor() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let path = node.fifo("reader", "stdin");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("mkfifo");
    let open = |write: bool| {
        OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(&path).expect("open FIFO")
    };
    let (reader_end, mut writer_end) = (open(false), open(true));
    let lock = Lock::input({
        writer_end.write_all(b"input").expect("write");
        reader_end.try_clone().expect("dup")
    });
    let attachments =
        node.output("reader").with(Role::Stdin, reader_end.into()).with(Role::StdinHold, writer_end.into());
    let spec = node.spec("reader", &["sleep", "1000"]);
    let container = node.create_with("reader", spec, attachments).expect("create");
    node.start_container("reader").expect("start");
    node.request(Request::CloseStdin { container: "reader".into() }, Attachments::new()).expect("close stdin");
    bystanders(&mut node, "stdin", "counter");
    assert_eq!(node.inventory()["reader"].0.state, HoldingState::Running);
    lock.unlock();
    drop(container);
    kill_and_delete(&mut node, "reader");
    kill_and_delete(&mut node, "counter");
    finish(node);
}

#[test]
fn a_monitor_that_dies_while_a_pipe_is_locked_is_replaced() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) = run_with_output(&mut node, "locked", "sleep 1000");
    let (lock, _) = block_writer(&node, &output);
    let before = node.inventory();
    node.replace_monitor();
    for (_, (holding, files)) in before {
        let adopt = Request::Adopt(monitor_api::Adopt { holding });
        node.request(adopt, files).expect("adopt");
    }
    bystanders(&mut node, "adopted", "counter");
    lock.unlock();
    let begin = Instant::now();
    while node.log("locked").is_empty() {
        assert!(begin.elapsed() < TIME_LIMIT, "its log does not grow");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_and_delete(&mut node, "locked");
    kill_and_delete(&mut node, "counter");
    check_counter(&node, "counter");
    finish(node);
}
