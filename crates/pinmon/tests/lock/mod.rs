//! Pipes of containers that this test locks, as any process can that has one.
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

use super::node::{Held, Node};

/// Much longer than anything takes that does not wait for the lock, even here.
pub const PROMPT: Duration = Duration::from_secs(20);
/// What the monitor says of a container that holds up a log writer.
pub const REPORT: &str = "keeps its output's pipe locked";
/// Prints a number each 10 ms.
pub const COUNTER: &str = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.01; done";

/// Keeps a pipe locked until it is let go.
pub struct Lock {
    socket: UnixStream,
    thread: JoinHandle<()>,
}

impl Lock {
    /// Writes `text` to a pipe and locks it at once.
    pub fn output(mut file: File, text: &'static str) -> Self {
        let (socket, empty) = UnixStream::pair().expect("socketpair");
        let thread = std::thread::spawn(move || {
            file.write_all(text.as_bytes()).expect("write");
            let length = splice(&empty, None, &file, None, 1, SpliceFlags::empty()).expect("splice");
            assert_eq!(length, 0, "the socket was closed");
        });
        Self { socket, thread }
    }

    /// Fills a pipe, and keeps it locked by moving what is in it to a socket that takes nothing.
    pub fn input(pipe: File) -> Self {
        let (socket, mut full) = UnixStream::pair().expect("socketpair");
        full.set_nonblocking(true).expect("O_NONBLOCK");
        let filled = std::iter::repeat_with(|| full.write(&[0; 4096])).find_map(Result::err).expect("a limit");
        assert_eq!(filled.kind(), ErrorKind::WouldBlock);
        full.set_nonblocking(false).expect("O_NONBLOCK");
        let thread = std::thread::spawn(move || {
            // It fails once the other side of the socket is closed.
            let _ = splice(&pipe, None, &full, None, 1, SpliceFlags::empty());
        });
        std::thread::sleep(Duration::from_millis(100));
        Self { socket, thread }
    }

    pub fn let_go(self) {
        drop(self.socket);
        self.thread.join().expect("the lock's thread");
    }
}

/// A container, and the open file of its standard output, as a process has it that was passed it. Without it the
/// container's own last close would wait for the lock, and so would its end.
pub fn passed(node: &mut Node, id: &str, script: &str) -> (Held, File) {
    let output = node.output(id);
    let file = output.iter().find(|(role, _)| *role == Role::Stdout).map(|(_, file)| file.try_clone().expect("dup"));
    let held = node.create_with(id, node.spec(id, &["sh", "-c", script]), output).expect("create");
    node.start_container(id).expect("start");
    (held, file.expect("its standard output").into())
}

pub fn duplicate(file: &File) -> File {
    file.try_clone().expect("dup")
}

pub fn end(node: &mut Node, id: &str) {
    node.kill(Target::Container(id.into()), libc::SIGKILL, KillScope::All).expect("kill");
    node.wait(id);
    node.delete(id);
}

/// Nothing is left, and nothing was said but what is expected.
pub fn over(node: Node) {
    let expected = [REPORT, "a closed pipe", "the log writer of"];
    let text = node.diagnostics();
    let unexpected = text.lines().find(|line| !expected.iter().any(|expected| line.contains(expected)));
    assert_eq!(unexpected, None);
    std::fs::write(node.state.path().join("pinmon.log"), "").expect("diagnostics");
    node.end();
}
