//! Pipes of containers that this test locks, as any process that has such a pipe can.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use std::{
    fs::File,
    io::{ErrorKind, Write},
    os::unix::net::UnixStream,
    thread::JoinHandle,
    time::Duration,
};

use monitor_api::{KillScope, Role, Target};
use rustix::pipe::{SpliceFlags, splice};

use super::{Node, TestContainer};

/// Time limit of operations that do not wait for the lock. They take much less, even on a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Message of the monitor about a container that blocks a log writer.
pub const REPORT: &str = "keeps the pipe of its output locked";
/// Prints a number every 10 ms.
pub const COUNTER: &str = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.01; done";

/// Keeps a pipe locked until [`Lock::unlock`].
pub struct Lock {
    socket: UnixStream,
    thread: JoinHandle<()>,
}

impl Lock {
    /// Writes `text` to a pipe and immediately locks it.
    pub fn output(mut file: File, text: &'static str) -> Self {
        let (socket, empty) = UnixStream::pair().expect("socketpair");
        let thread = std::thread::spawn(move || {
            file.write_all(text.as_bytes()).expect("write");
            let length = splice(&empty, None, &file, None, 1, SpliceFlags::empty()).expect("splice");
            assert_eq!(length, 0, "the socket was closed");
        });
        Self { socket, thread }
    }

    /// Locks a pipe by moving its content to a full socket.
    pub fn input(pipe: File) -> Self {
        let (socket, mut full) = UnixStream::pair().expect("socketpair");
        full.set_nonblocking(true).expect("O_NONBLOCK");
        let error = std::iter::repeat_with(|| full.write(&[0; 4096])).find_map(Result::err).expect("a limit");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        full.set_nonblocking(false).expect("O_NONBLOCK");
        let thread = std::thread::spawn(move || {
            // It fails once the peer of the socket is closed.
            let _ = splice(&pipe, None, &full, None, 1, SpliceFlags::empty());
        });
        std::thread::sleep(Duration::from_millis(100));
        Self { socket, thread }
    }

    pub fn unlock(self) {
        drop(self.socket);
        self.thread.join().expect("the locking thread");
    }
}

/// Starts a container, and returns it with the open file of its standard output, which any process may have inherited.
/// Without it, the last close by the container would wait for the lock, and so would its exit.
pub fn run_with_output(node: &mut Node, id: &str, script: &str) -> (TestContainer, File) {
    let output = node.output(id);
    let file = output.iter().find(|(role, _)| *role == Role::Stdout).map(|(_, file)| file.try_clone().expect("dup"));
    let container = node.create_with(id, node.spec(id, &["sh", "-c", script]), output).expect("create");
    node.start_container(id).expect("start");
    (container, file.expect("its standard output").into())
}

pub fn duplicate(file: &File) -> File {
    file.try_clone().expect("dup")
}

pub fn kill_and_delete(node: &mut Node, id: &str) {
    node.kill(Target::Container(id.into()), libc::SIGKILL, KillScope::All).expect("kill");
    node.wait(id);
    node.delete(id);
}

/// Ends the node; nothing may be left over, and only expected messages may have been logged.
pub fn finish(node: Node) {
    let expected = [REPORT, "the log writer of"];
    let text = node.diagnostics();
    let unexpected = text.lines().find(|line| !expected.iter().any(|expected| line.contains(expected)));
    assert_eq!(unexpected, None);
    node.clear_diagnostics();
    node.end();
}
