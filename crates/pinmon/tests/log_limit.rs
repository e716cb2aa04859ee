//! Logs with a maximum size: they are replaced, readers that follow them continue, and what is kept is complete.

mod node;

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    time::Duration,
};

use monitor_api::{Adopt, Attachments, Event, LogLimit, LogOptions, Request, Role};
use node::{Node, TestContainer};
use rustix::fs::{Mode, OFlags};

impl Node {
    fn log_directory(&self) -> rustix::fd::OwnedFd {
        rustix::fs::open(self.state.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .expect("the directory")
    }

    /// Creates a container whose log has a maximum size.
    fn create_limited(&mut self, id: &str, script: &str, size_max: u64, terminal: bool) -> TestContainer {
        let mut spec = self.spec(id, &["sh", "-c", script]);
        spec.process.as_mut().expect("a process").terminal = terminal;
        let output = if terminal { Attachments::new().with(Role::Log, self.open_log(id)) } else { self.output(id) };
        let attachments = output.with(Role::LOG_DIRECTORY, self.log_directory());
        let limit = LogLimit { size_max, name: format!("{id}.log") };
        let log = LogOptions { limit: Some(limit), ..LogOptions::default() };
        self.create_logged(id, spec, log, attachments).expect("create")
    }

    /// Returns the lines of the output that are in the log, without the first, whose beginning may be in the previous
    /// file.
    fn kept_lines(&self, id: &str) -> Vec<String> {
        let mut text = String::new();
        for entry in self.log(id) {
            match entry.split_at("stdout F ".len()) {
                ("stdout F ", line) => text += &format!("{}\n", line.trim_end()),
                ("stdout P ", part) => text += part,
                _ => assert!(
                    entry.contains("[pinmon: ") && entry.contains("the log reached its maximum size"),
                    "{entry}"
                ),
            }
        }
        text.lines().skip(1).map(str::to_owned).collect()
    }
}

/// Checks that these are the last numbers up to `last`, each once.
#[track_caller]
fn assert_last_numbers(lines: &[String], last: usize) {
    let expected: Vec<String> = (last + 1 - lines.len()..=last).map(|number| number.to_string()).collect();
    assert!(lines.len() > 10 && lines == expected, "{} lines: {:?} to {:?}", lines.len(), lines.first(), lines.last());
}

#[test]
fn a_log_with_a_maximum_size_has_the_last_lines_each_once_however_often_the_monitor_is_killed() {
    const SIZE_MAX: u64 = 50_000;
    let mut node = Node::start();
    let container = node.create_limited("c", "seq 1 1000000; sleep 0.2", SIZE_MAX, false);
    node.start_container("c").expect("start");
    let (mut kills, mut inodes) = (0, Vec::new());
    while !container.has_ended() && kills < 60 {
        std::thread::sleep(Duration::from_millis(kills % 7));
        let metadata = fs::metadata(node.log_path("c")).expect("the log always exists");
        assert!(metadata.len() <= SIZE_MAX, "{}", metadata.len());
        inodes.push(metadata.ino());
        let mut held = node.inventory();
        node.replace_monitor();
        kills += 1;
        let (holding, files) = held.remove("c").expect("held");
        assert_eq!(holding.container.log.limit.as_ref().map(|limit| limit.size_max), Some(SIZE_MAX));
        node.request(Request::Adopt(Adopt { holding }), files).expect("adopt");
    }
    assert_eq!(node.wait("c").code, Some(0), "after {kills} kills");
    inodes.dedup();
    assert!(kills >= 10 && inodes.len() >= 3, "{kills} kills, {} files", inodes.len());
    assert_last_numbers(&node.kept_lines("c"), 1_000_000);
    node.delete("c");
    // On a machine that is overloaded, the monitor reports that the container blocks its log writer.
    node.clear_diagnostics();
    node.end_after_kills();
}

#[test]
fn a_reader_that_follows_the_log_loses_nothing() {
    let mut node = Node::start();
    let script =
        "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; [ $((i % 100)) = 0 ] && sleep 0.1; done; sleep 0.5";
    let container = node.create_limited("c", script, 20_000, false);
    node.start_container("c").expect("start");
    let (mut text, mut files) = (String::new(), 1);
    let mut file = File::open(node.log_path("c")).expect("the log");
    let mut ends = 0;
    while ends < 2 {
        ends += usize::from(container.has_ended());
        file.read_to_string(&mut text).expect("read");
        let current = File::open(node.log_path("c")).expect("the log always exists");
        if current.metadata().expect("stat").ino() != file.metadata().expect("stat").ino() {
            file.read_to_string(&mut text).expect("the rest of the replaced log");
            file = current;
            files += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut failures = Vec::new();
    loop {
        match node.event() {
            Event::LogFailed { dropped, message, .. } => failures.push((dropped, message)),
            Event::Exited { .. } => break,
            other => panic!("unexpected: {other:?}"),
        }
    }
    file.read_to_string(&mut text).expect("read");
    let lines: Vec<String> =
        text.lines().filter(|line| line.contains("stdout F")).map(|line| line[40..].to_owned()).collect();
    assert_last_numbers(&lines, 2000);
    assert!(lines.len() == 2000 && files >= 4, "{} lines of {files} files", lines.len());
    let (dropped, message) = failures.last().expect("the daemon is notified");
    assert!(*dropped >= 15_000 && message == "the log reached its maximum size, 20000 bytes", "{dropped}: {message}");
    node.delete("c");
    node.end();
}

#[test]
fn a_rotated_log_has_the_same_maximum_size() {
    let mut node = Node::start();
    node.create_limited("c", "seq 1 100; while [ ! -e /go ]; do sleep 0.01; done; seq 101 2000", 20_000, false);
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F 100");
    let rotated = node.state.path().join("rotated");
    fs::rename(node.log_path("c"), &rotated).expect("rotate");
    let log = Attachments::new().with(Role::Log, node.open_log("c")).with(Role::LOG_DIRECTORY, node.log_directory());
    node.request(Request::ReopenLog { container: "c".into() }, log).expect("reopen");
    node.put("go");
    assert_eq!(node.wait("c").code, Some(0));
    assert_eq!(node::entries(&rotated).len(), 100, "the rotated log is complete");
    assert_last_numbers(&node.kept_lines("c"), 2000);
    assert!(fs::metadata(node.log_path("c")).expect("the log").len() <= 20_000);
    node.delete("c");
    node.end();
}

#[test]
fn the_log_of_a_terminal_has_a_maximum_size_too() {
    let mut node = Node::start();
    node.create_limited("c", "seq 1 5000", 8192, true);
    node.start_container("c").expect("start");
    assert_eq!(node.wait("c").code, Some(0));
    assert!(fs::metadata(node.log_path("c")).expect("the log").len() <= 8192);
    assert_last_numbers(&node.kept_lines("c"), 5000);
    node.delete("c");
    node.end();
}
