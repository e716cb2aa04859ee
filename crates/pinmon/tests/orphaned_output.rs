//! Output that outlives its container, and the log of it.

mod node;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use node::{Node, PATIENCE};
use testbed::wait_until;

/// Time limit. The monitor reports the exit of a container with a slow log after 12 s.
const TIME_LIMIT: Duration = Duration::from_secs(8);

/// Another container of the pod has inherited the write end of a FIFO, and writes to it forever.
#[test]
fn output_of_others_does_not_delay_the_exit_of_a_container() {
    let mut node = Node::start();
    node.shell("a", "echo last");
    let stopped = Arc::new(AtomicBool::new(false));
    let mut fifo =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(node.fifo("a", "stdout")).expect("open");
    let stop = Arc::clone(&stopped);
    let writer = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            if fifo.write(&b"another line\n".repeat(300)).is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    let begin = Instant::now();
    assert_eq!(node.wait("a").code, Some(0));
    let took = begin.elapsed();
    node.delete("a");
    let length = || fs::metadata(node.log_path("a")).expect("a log").len();
    let at_the_end = length();
    std::thread::sleep(Duration::from_millis(300));
    let later = length();
    stopped.store(true, Ordering::Relaxed);
    writer.join().expect("the thread");
    assert!(took < TIME_LIMIT, "its exit was reported after {took:?}");
    assert_eq!(at_the_end, later, "output is still logged");
    assert!(node.log("a").contains(&"stdout F last".to_owned()));
    node.end();
}

/// The last close of an unlinked file removes it, which the monitor must not wait for.
#[test]
fn the_log_of_an_exited_container_is_open_in_no_process() {
    let mut node = Node::start();
    node.shell("c", "echo text; exit 4");
    assert_eq!(node.wait("c").code, Some(4));
    let log = node.log_path("c");
    let pid = node.monitor.as_raw_nonzero();
    let holders = || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the monitor is running");
        let all = children.split_whitespace().map(str::to_owned).chain([pid.to_string()]);
        let files = |pid: String| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        all.flat_map(files).filter(|file| fs::read_link(file.path()).is_ok_and(|to| to == log)).count()
    };
    wait_until("no process has it open", PATIENCE, || holders() == 0);
    assert_eq!(node.log("c"), ["stdout F text"]);
    node.delete("c");
    node.end();
}
