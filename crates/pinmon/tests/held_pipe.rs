//! A process that keeps a container's pipe locked (splice(2) from an empty socket, or to a full one): that container's
//! log waits for it, nobody else does, and no line is lost or doubled.

mod lock;
mod node;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    time::{Duration, Instant},
};

use lock::{COUNTER, Lock, PROMPT, REPORT, duplicate, end, over, passed};
use monitor_api::{Attachments, HoldingState, KillScope, Pong, Reply, Request, Role, Target};
use node::Node;

/// Locks a container's standard output so that its log writer is held up. `x` is written for each try.
fn hold_up(node: &Node, output: &File) -> (Lock, usize) {
    let reports = || node.diagnostics().matches(REPORT).count();
    let before = reports();
    for tries in 1..=20 {
        let lock = Lock::output(duplicate(output), "x");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            if reports() > before {
                return (lock, tries);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The writer looked before the pipe was locked.
        lock.let_go();
    }
    panic!("its writer is never held up: {}", node.diagnostics());
}

fn ping(node: &mut Node) -> Pong {
    match node.ask(Request::Ping, Attachments::new()).expect("ping") {
        (Reply::Pong(pong), _) => pong,
        (other, _) => panic!("unexpected: {other:?}"),
    }
}

/// The log of a counter goes on, and a whole life and a command take no time.
fn bystanders(node: &mut Node, round: &str, counter: &str) {
    let begin = Instant::now();
    let before = node.log(counter).len();
    while node.log(counter).len() < before + 20 {
        assert!(begin.elapsed() < PROMPT, "{round}: the log of {counter} stands still");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = format!("{round}-exec");
    node.exec(counter, &id, &["true"]).expect("exec");
    assert_eq!(node.wait_exec(&id).code, Some(0));
    let id = format!("{round}-life");
    node.shell(&id, "echo here; sleep 1000");
    node.wait_for_entry(&id, "stdout F here");
    node.kill(Target::Container(id.clone()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait(&id).signal, Some(9));
    node.delete(&id);
    assert!(begin.elapsed() < PROMPT, "{round}: {:?}", begin.elapsed());
}

/// Lines of a counter: in order, each once.
fn check_counter(node: &Node, id: &str) {
    let expected: Vec<String> = (1..=node.log(id).len()).map(|n| format!("stdout F {n}")).collect();
    assert_eq!(node.log(id), expected);
}

#[test]
fn a_locked_output_holds_up_its_own_log_only() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) =
        passed(&mut node, "locked", "while [ ! -e /tmp/go ]; do sleep 0.01; done; echo on; sleep 1000");
    let (lock, tries) = hold_up(&node, &output);
    bystanders(&mut node, "locked", "counter");
    assert!(ping(&mut node).stuck.is_empty(), "no file system hangs");
    lock.let_go();
    let text = "x".repeat(tries);
    let begin = Instant::now();
    let entries = |node: &Node| node.log("locked").iter().map(|line| line[9..].to_owned()).collect::<String>();
    while entries(&node) != text {
        assert!(begin.elapsed() < PROMPT, "{:?} is not {text:?}", node.log("locked"));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its writer is one apart now: another lock of it is nobody's business.
    let reports = node.diagnostics().matches(REPORT).count();
    let again = Lock::output(duplicate(&output), "y");
    bystanders(&mut node, "again", "counter");
    again.let_go();
    assert_eq!(node.diagnostics().matches(REPORT).count(), reports);
    node.wait_for_entry("locked", "stdout P y");
    assert_eq!(entries(&node), format!("{text}y"));
    std::fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    node.wait_for_entry("locked", "stdout F on");
    end(&mut node, "locked");
    end(&mut node, "counter");
    check_counter(&node, "counter");
    over(node);
}

#[test]
fn a_container_whose_output_is_locked_ends_and_is_deleted() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) = passed(&mut node, "locked", "sleep 1000");
    let (lock, tries) = hold_up(&node, &output);
    let begin = Instant::now();
    end(&mut node, "locked");
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
    bystanders(&mut node, "deleted", "counter");
    lock.let_go();
    let begin = Instant::now();
    while node.log("locked").iter().map(|line| line[9..].len()).sum::<usize>() < tries {
        assert!(begin.elapsed() < PROMPT, "{:?}", node.log("locked"));
        std::thread::sleep(Duration::from_millis(20));
    }
    end(&mut node, "counter");
    check_counter(&node, "counter");
    over(node);
}

#[test]
fn a_locked_pipe_is_closed_without_the_monitor() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    for round in 0..2 {
        let id = format!("locked-{round}");
        let (held, output) = passed(&mut node, &id, "sleep 1000");
        let lock = Lock::output(output, "");
        // The daemon's copies go too: the log writer's is the last.
        drop(held);
        end(&mut node, &id);
        std::thread::sleep(Duration::from_millis(500));
        bystanders(&mut node, &format!("closed-{round}"), "counter");
        lock.let_go();
    }
    end(&mut node, "counter");
    check_counter(&node, "counter");
    over(node);
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
    let (theirs, mut ours) = (open(false), open(true));
    let lock = Lock::input({
        ours.write_all(b"input").expect("write");
        theirs.try_clone().expect("dup")
    });
    let attachments = node.output("reader").with(Role::Stdin, theirs.into()).with(Role::StdinHold, ours.into());
    let spec = node.spec("reader", &["sleep", "1000"]);
    let held = node.create_with("reader", spec, attachments).expect("create");
    node.start_container("reader").expect("start");
    node.ask(Request::CloseStdin { container: "reader".into() }, Attachments::new()).expect("close stdin");
    bystanders(&mut node, "stdin", "counter");
    assert_eq!(node.inventory()["reader"].0.state, HoldingState::Running);
    lock.let_go();
    drop(held);
    end(&mut node, "reader");
    end(&mut node, "counter");
    over(node);
}

#[test]
fn a_monitor_that_dies_while_a_pipe_is_locked_is_followed_by_another() {
    let mut node = Node::start();
    let _counter = node.shell("counter", COUNTER);
    let (_locked, output) = passed(&mut node, "locked", "sleep 1000");
    let (lock, _) = hold_up(&node, &output);
    let before = node.inventory();
    node.replace_monitor();
    for (_, (holding, files)) in before {
        let adopt = Request::Adopt(monitor_api::Adopt { holding });
        node.ask(adopt, files).expect("adopt");
    }
    bystanders(&mut node, "adopted", "counter");
    lock.let_go();
    let begin = Instant::now();
    while node.log("locked").is_empty() {
        assert!(begin.elapsed() < PROMPT, "its log goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    end(&mut node, "locked");
    end(&mut node, "counter");
    check_counter(&node, "counter");
    over(node);
}
