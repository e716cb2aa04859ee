//! Log writers that containers block for limited times, and the effects on other containers.

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

use monitor_api::{Attach, Attachments, Create, LogOptions, Request, Role};
use node::disk::Disk;
use node::lock::{COUNTER, Lock, REPORT, TIME_LIMIT, duplicate, finish, kill_and_delete, run_with_output};
use node::{Node, PATIENCE, TestContainer};
use rustix::pipe::{SpliceFlags, splice};
use testbed::wait_until;

/// Locks a pipe repeatedly for 50 ms, and writes a byte each time.
fn lock_shortly(pipe: File, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut feed, socket) = UnixStream::pair().expect("socketpair");
    let (stop, stop_feeder) = (Arc::clone(stop), Arc::clone(stop));
    let feeder = thread::spawn(move || {
        while !stop_feeder.load(Ordering::SeqCst) {
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
fn short_locks_add_up_and_affect_only_the_containers_that_lock() {
    let mut node = Node::start();
    let begin = "while [ ! -e /tmp/go ]; do sleep 0.01; done";
    let line = "0123456789".repeat(7);
    let flood = format!("{begin}; yes {line} | head -n 40000; echo end; sleep 1000");
    let _flood = node.shell("flood", &flood);
    let stop = Arc::new(AtomicBool::new(false));
    let ids: Vec<String> = (0..8).map(|n| format!("locked-{n}")).collect();
    let (mut containers, mut threads) = (Vec::new(), Vec::new());
    for id in &ids {
        let (container, output) = run_with_output(&mut node, id, "sleep 1000");
        containers.push(container);
        threads.push(lock_shortly(output, &stop));
    }
    wait_until("all have dedicated writers", TIME_LIMIT, || node.diagnostics().matches(REPORT).count() == ids.len());
    let start = Instant::now();
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    wait_until("the flood is in its log", PATIENCE, || {
        fs::read(node.log_path("flood")).is_ok_and(|log| log.ends_with(b" stdout F end\n"))
    });
    assert!(start.elapsed() < TIME_LIMIT, "{:?}", start.elapsed());
    let expected = [format!("{line}\n").repeat(40_000).as_str(), "end\n"].concat();
    assert!(node.text("flood") == expected.as_bytes(), "{} lines", node.log("flood").len());
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("the locking thread"));
    for id in ids.iter().map(String::as_str).chain(["flood"]) {
        kill_and_delete(&mut node, id);
    }
    finish(node);
}

#[test]
fn a_lock_that_begins_while_the_disk_is_slow_is_detected() {
    let mut disk = Disk::new();
    let mut node = Node::start();
    for id in ["counter", "locked"] {
        let path = disk.path().join(format!("{id}.log"));
        fs::write(&path, "").expect("a log");
        std::os::unix::fs::symlink(path, node.log_path(id)).expect("a link");
    }
    let (_locked, mut output) = run_with_output(&mut node, "locked", "sleep 1000");
    let _counter = node.shell("counter", &format!("while [ ! -e /tmp/go ]; do sleep 0.01; done; {COUNTER}"));
    thread::sleep(Duration::from_millis(300));
    disk.freeze();
    output.write_all(b"line\n").expect("write");
    // The alarm expires while the log writer is writing.
    thread::sleep(Duration::from_millis(400));
    let lock = Lock::output(duplicate(&output), "");
    thread::sleep(Duration::from_millis(100));
    disk.thaw();
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    wait_until("the log of the counter grows", TIME_LIMIT, || node.log("counter").len() >= 20);
    lock.unlock();
    wait_until("the log of the locked container is written", TIME_LIMIT, || node.log("locked") == ["stdout F line"]);
    drop(output);
    kill_and_delete(&mut node, "locked");
    kill_and_delete(&mut node, "counter");
    finish(node);
}

#[test]
fn an_attached_client_of_another_container_gets_the_end_of_output() {
    let mut node = Node::start();
    let _victim =
        node.create("victim", &["sh", "-c", "echo one; while [ ! -e /tmp/go ]; do sleep 0.01; done; echo two"]);
    let (mut client, stdout) = UnixStream::pair().expect("socketpair");
    let attach = Request::Attach(Attach { container: "victim".into() });
    node.request(attach, Attachments::new().with(Role::Stdout, stdout.into())).expect("attach");
    node.start_container("victim").expect("start");
    let (_locked, output) = run_with_output(&mut node, "locked", "sleep 1000");
    let mut lock = Lock::output(duplicate(&output), "x");
    let begin = Instant::now();
    while !node.diagnostics().contains(REPORT) {
        assert!(begin.elapsed() < TIME_LIMIT, "its writer was never blocked");
        thread::sleep(Duration::from_millis(500));
        if !node.diagnostics().contains(REPORT) {
            lock.unlock();
            lock = Lock::output(duplicate(&output), "x");
        }
    }
    fs::write(node.state.path().join("root/tmp/go"), "").expect("go");
    node.wait("victim");
    node.delete("victim");
    client.set_read_timeout(Some(TIME_LIMIT)).expect("SO_RCVTIMEO");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the end of its output");
    assert_eq!(text, "one\ntwo\n");
    lock.unlock();
    drop(output);
    kill_and_delete(&mut node, "locked");
    finish(node);
}

/// Starts a container of this pod with a standard input, and returns the read end of it.
fn with_input(node: &mut Node, pod: &str, id: &str, args: &[&str]) -> (TestContainer, File) {
    let path = node.fifo(id, "stdin");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("mkfifo");
    let open = |write: bool| {
        OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(&path).expect("open FIFO")
    };
    let (reader, mut writer) = (open(false), open(true));
    rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::empty()).expect("F_SETFL");
    if args != ["cat"] {
        writer.write_all(b"input").expect("write");
    }
    let input = duplicate(&reader);
    let files = node.output(id).with(Role::Stdin, reader.into()).with(Role::StdinHold, writer.into());
    let files = files.with(Role::Rootfs, node.rootfs());
    let create = Create {
        container: id.into(),
        sandbox: pod.into(),
        spec: node.spec(id, args),
        log: LogOptions::default(),
        bundle: String::new(),
        mounts: None,
        runtime: None,
        external: false,
        interpreter: None,
    };
    let (_, mut files) = node.request(Request::Create(Box::new(create)), files).expect("create");
    let pidfd = files.take(Role::Pidfd).expect("a pidfd");
    node.start_container(id).expect("start");
    let created = monitor_api::Created { pid: 0, start_time: 0, warnings: Vec::new() };
    (TestContainer { id: id.into(), created, pidfd, sync: None, terminal: None, reading: Attachments::new() }, input)
}

#[test]
fn locked_inputs_of_one_pod_do_not_delay_closing_those_of_others() {
    let mut node = Node::start();
    let _victim = with_input(&mut node, "victims", "victim", &["cat"]);
    let mut locks = Vec::new();
    for n in 0..8 {
        let id = format!("locked-{n}");
        let (_, input) = with_input(&mut node, "attacker", &id, &["sleep", "1000"]);
        locks.push(Lock::input(input));
        node.request(Request::CloseStdin { container: id }, Attachments::new()).expect("close stdin");
    }
    node.request(Request::CloseStdin { container: "victim".into() }, Attachments::new()).expect("close stdin");
    drop(_victim);
    assert_eq!(node.wait("victim").code, Some(0));
    node.delete("victim");
    locks.into_iter().for_each(Lock::unlock);
    for n in 0..8 {
        kill_and_delete(&mut node, &format!("locked-{n}"));
    }
    finish(node);
}
