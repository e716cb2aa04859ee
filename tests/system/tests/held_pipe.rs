//! A process that keeps the pipe of a command locked inside the kernel (splice(2) from an empty socket): the daemon goes on,
//! and one that is killed meanwhile cannot end, but is followed by another.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::net::UnixStream,
    process::Stdio,
    thread::{self, JoinHandle},
};

use rustix::pipe::{SpliceFlags, splice};
use system_tests::{Node, Process, Registry, wait_until};

/// Keeps the standard output of a process locked until it is let go.
struct Lock(UnixStream, JoinHandle<()>);

impl Lock {
    /// Writes a byte at once, so that the pipe is touched by whoever reads it.
    fn output(process: &Process) -> Self {
        let mut pipe = OpenOptions::new().write(true).open(process.folder.join("fd/1")).expect("its standard output");
        let (socket, empty) = UnixStream::pair().expect("socketpair");
        let thread = thread::spawn(move || {
            pipe.write_all(b"x").expect("write");
            splice(&empty, None, &pipe, None, 1, SpliceFlags::empty()).expect("splice");
        });
        Self(socket, thread)
    }

    fn let_go(self) {
        drop(self.0);
        self.1.join().expect("the lock's thread");
    }
}

/// Whether a thread of a process waits for what no signal ends.
fn is_held(process: &Process) -> bool {
    let threads = std::fs::read_dir(process.folder.join("task")).into_iter().flatten().flatten();
    let waits = |path: std::path::PathBuf| {
        std::fs::read_to_string(path.join("wchan")).is_ok_and(|place| place.contains("pipe_read"))
    };
    threads.into_iter().any(|thread| waits(thread.path()))
}

#[test]
fn a_daemon_that_is_killed_and_cannot_end_is_followed_by_another() {
    let mut node = Node::start();
    let mut registry = Registry::start(&node);
    let image = "127.0.0.1:5000/demo:1";
    node.pinion(&["run", "-d", "--name", "web", image, "sleep", "1000"]).ok();
    node.pinion(&["run", "-d", "--name", "other", image, "sleep", "1000"]).ok();
    let pinion = std::path::PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN: run `make test`"));
    let mut client = node.command(pinion.join("pinion"));
    client.args(["exec", "web", "sleep", "777"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = client.spawn().expect("nsenter starts");
    let command = || node.processes().into_iter().find(|process| process.command_line() == "sleep 777");
    wait_until("the command runs", || command().is_some());
    let command = command().expect("it runs");
    let serves = |process: &Process| process.name == "pinion" && process.command_line().contains(" serve ");
    let daemon = node.processes().into_iter().find(serves).expect("the daemon");
    let mut lock = Lock::output(&command);
    // The daemon may have read before the pipe was locked.
    for _ in 0..20 {
        thread::sleep(std::time::Duration::from_millis(200));
        if is_held(&daemon) {
            break;
        }
        lock.let_go();
        lock = Lock::output(&command);
    }
    assert!(is_held(&daemon), "a thread of the daemon waits for the pipe");
    node.pinion(&["exec", "other", "true"]).ok();
    node.kill(&daemon);
    thread::sleep(std::time::Duration::from_millis(500));
    assert!(is_held(&daemon), "it cannot end");
    // Until it listens, clients connect to the one that cannot end.
    node.spawn_daemon(&[]);
    wait_until("another daemon is ready", || node.daemon_log().matches("  INFO ready ").count() == 2);
    node.pinion(&["exec", "other", "true"]).ok();
    assert!(node.pinion(&["images"]).ok().contains("demo"));
    node.pinion(&["run", "-d", "--name", "new", image, "sleep", "1000"]).ok();
    for name in ["other", "new"] {
        node.pinion(&["rm", "-f", name]).ok();
    }
    // The command cannot end before: its last close of the pipe waits, too.
    lock.let_go();
    node.pinion(&["rm", "-f", "web"]).ok();
    let _ = client.wait();
    registry.stop(&node);
    node.end();
}
