//! Output that outlives its container, and the log that it goes to.

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

use node::Node;

/// The monitor reports the end of a container whose log is slow after 12 s.
const PROMPT: Duration = Duration::from_secs(8);

/// Another container of the pod was handed the end of a FIFO, and writes on forever.
#[test]
fn output_of_others_does_not_hold_up_the_end_of_a_container() {
    let mut node = Node::start();
    node.shell("a", "echo last");
    let over = Arc::new(AtomicBool::new(false));
    let mut fifo =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(node.fifo("a", "stdout")).expect("open");
    let stop = Arc::clone(&over);
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
    over.store(true, Ordering::Relaxed);
    writer.join().expect("the thread");
    assert!(took < PROMPT, "its end was reported after {took:?}");
    assert_eq!(at_the_end, later, "it is still logged");
    assert!(node.log("a").contains(&"stdout F last".to_owned()));
    node.end();
}

/// Who closes a file last that was unlinked removes it, which is not for the monitor to wait for.
#[test]
fn the_log_of_a_container_that_ended_is_open_nowhere() {
    let mut node = Node::start();
    node.shell("c", "echo text; exit 4");
    assert_eq!(node.wait("c").code, Some(4));
    let log = node.log_path("c");
    let pid = node.monitor.as_raw_nonzero();
    let holders = || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it lives");
        let all = children.split_whitespace().map(str::to_owned).chain([pid.to_string()]);
        let files = |pid: String| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        all.flat_map(files).filter(|file| fs::read_link(file.path()).is_ok_and(|to| to == log)).count()
    };
    node.eventually("nobody has it", |_| holders() == 0);
    assert_eq!(node.log("c"), ["stdout F text"]);
    node.delete("c");
    node.end();
}
