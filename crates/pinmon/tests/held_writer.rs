//! Log writers that containers hold up in other ways than forever.

mod disk;
mod lock;
mod node;

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::{fs::OpenOptionsExt, net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use disk::Disk;
use lock::{COUNTER, Lock, PROMPT, REPORT, duplicate, end, over, passed};
use monitor_api::{Attach, Attachments, Create, LogOptions, Request, Role};
use node::{Held, Node};
use rustix::pipe::{SpliceFlags, splice};

fn wait(what: &str, so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PROMPT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Locks a pipe again and again, each time for 50 ms, and writes a byte each time.
fn lock_shortly(pipe: File, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut feed, socket) = UnixStream::pair().expect("socketpair");
    let (stop, over) = (Arc::clone(stop), Arc::clone(stop));
    let feeder = thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(50));
            feed.write_all(b"x").expect("its other side is open");
        }
    });
    thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            splice(&socket, None, &pipe, None, 1, SpliceFlags::empty()).expect("splice");
        }
        feeder.join().expect("the feeder");
    })
}

#[test]
fn short_locks_add_up_for_the_one_that_locks_only() {
    let mut node = Node::start();
    let begin = "while [ ! -e /tmp/go ]; do sleep 0.01; done";
    let line = "0123456789".repeat(7);
    let flood = format!("{begin}; yes {line} | head -n 40000; echo end; sleep 1000");
    let _flood = node.shell("flood", &flood);
    let stop = Arc::new(AtomicBool::new(false));
    let ids: Vec<String> = (0..8).map(|n| format!("locked-{n}")).collect();
    let (mut held, mut threads) = (Vec::new(), Vec::new());
    for id in &ids {
        let (container, output) = passed(&mut node, id, "sleep 1000");
        held.push(container);
        threads.push(lock_shortly(output, &stop));
    }
    wait("all have a writer of their own", || node.diagnostics().matches(REPORT).count() == ids.len());
    let began = Instant::now();
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    node.eventually("the flood is in its log", |node| {
        fs::read(node.log_path("flood")).is_ok_and(|log| log.ends_with(b" stdout F end\n"))
    });
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    assert_eq!(node.log("flood").len(), 40001);
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("a lock's thread"));
    for id in ids.iter().map(String::as_str).chain(["flood"]) {
        end(&mut node, id);
    }
    over(node);
}

#[test]
fn a_lock_that_begins_while_the_disk_is_slow_is_noticed() {
    let mut disk = Disk::new();
    let mut node = Node::start();
    for id in ["counter", "locked"] {
        let path = disk.path().join(format!("{id}.log"));
        fs::write(&path, "").expect("a log");
        std::os::unix::fs::symlink(path, node.log_path(id)).expect("a link");
    }
    let (_locked, mut output) = passed(&mut node, "locked", "sleep 1000");
    let _counter = node.shell("counter", &format!("while [ ! -e /tmp/go ]; do sleep 0.01; done; {COUNTER}"));
    thread::sleep(Duration::from_millis(300));
    disk.freeze();
    output.write_all(b"line\n").expect("write");
    // The alarm rings while the writer writes.
    thread::sleep(Duration::from_millis(400));
    let lock = Lock::output(duplicate(&output), "");
    thread::sleep(Duration::from_millis(100));
    disk.thaw();
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    wait("the counter's log goes on", || node.log("counter").len() >= 20);
    lock.let_go();
    wait("so does the other", || node.log("locked") == ["stdout F line"]);
    drop(output);
    end(&mut node, "locked");
    end(&mut node, "counter");
    over(node);
}

#[test]
fn an_attached_client_of_another_container_gets_the_end() {
    let mut node = Node::start();
    let _victim =
        node.create("victim", &["sh", "-c", "echo one; while [ ! -e /tmp/go ]; do sleep 0.01; done; echo two"]);
    let (mut client, stdout) = UnixStream::pair().expect("socketpair");
    let attach = Request::Attach(Attach { container: "victim".into() });
    node.ask(attach, Attachments::new().with(Role::Stdout, stdout.into())).expect("attach");
    node.start_container("victim").expect("start");
    let (_locked, output) = passed(&mut node, "locked", "sleep 1000");
    let mut lock = Lock::output(duplicate(&output), "x");
    let begin = Instant::now();
    while !node.diagnostics().contains(REPORT) {
        assert!(begin.elapsed() < PROMPT, "its writer is never held up");
        thread::sleep(Duration::from_millis(500));
        if !node.diagnostics().contains(REPORT) {
            lock.let_go();
            lock = Lock::output(duplicate(&output), "x");
        }
    }
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    node.wait("victim");
    node.delete("victim");
    client.set_read_timeout(Some(PROMPT)).expect("SO_RCVTIMEO");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the end of its output");
    assert_eq!(text, "one\ntwo\n");
    lock.let_go();
    drop(output);
    end(&mut node, "locked");
    over(node);
}

/// A container of this pod with an input, whose reading end is returned.
fn with_input(node: &mut Node, pod: &str, id: &str, args: &[&str]) -> (Held, File) {
    let path = node.fifo(id, "stdin");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("mkfifo");
    let open = |write: bool| {
        OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(&path).expect("open FIFO")
    };
    let (theirs, mut ours) = (open(false), open(true));
    rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty()).expect("F_SETFL");
    if args != ["cat"] {
        ours.write_all(b"input").expect("write");
    }
    let input = duplicate(&theirs);
    let files = node.output(id).with(Role::Stdin, theirs.into()).with(Role::StdinHold, ours.into());
    let files = files.with(Role::Rootfs, node.rootfs());
    let create = Create {
        container: id.into(),
        sandbox: pod.into(),
        spec: node.spec(id, args),
        log: LogOptions::default(),
        bundle: String::new(),
        mounts: None,
    };
    let (_, mut files) = node.ask(Request::Create(Box::new(create)), files).expect("create");
    let pidfd = files.take(Role::Pidfd).expect("a pidfd");
    node.start_container(id).expect("start");
    let created = monitor_api::Created { pid: 0, start_time: 0, warnings: Vec::new() };
    (Held { id: id.into(), created, pidfd, sync: None, terminal: None, reading: Attachments::new() }, input)
}

#[test]
fn inputs_that_one_pod_locks_are_closed_after_those_of_others() {
    let mut node = Node::start();
    let _victim = with_input(&mut node, "victims", "victim", &["cat"]);
    let mut locks = Vec::new();
    for n in 0..8 {
        let id = format!("locked-{n}");
        let (_, input) = with_input(&mut node, "attacker", &id, &["sleep", "1000"]);
        locks.push(Lock::input(input));
        node.ask(Request::CloseStdin { container: id }, Attachments::new()).expect("close stdin");
    }
    node.ask(Request::CloseStdin { container: "victim".into() }, Attachments::new()).expect("close stdin");
    drop(_victim);
    assert_eq!(node.wait("victim").code, Some(0));
    node.delete("victim");
    locks.into_iter().for_each(Lock::let_go);
    for n in 0..8 {
        end(&mut node, &format!("locked-{n}"));
    }
    over(node);
}
