//! Output of all kinds, to the log and to attached clients.

mod node;

use std::io::Read;

use monitor_api::{Attach, Attachments, Request, Role};
use node::Node;

#[test]
fn huge_lines_and_binary_output_are_logged_completely() {
    let mut node = Node::start();
    node.shell("c", "yes abcdefg | head -c 300000 | { while read -r l; do printf %s $l; done; }; echo; printf 'a\\0b\\377\\n'; dd if=/dev/zero bs=100000 count=3 2>/dev/null");
    assert_eq!(node.wait("c").code, Some(0));
    let expected = [&b"abcdefg".repeat(300_000 / 8)[..], b"abcd\n"].concat();
    let received = node.text("c");
    let (line, rest) = received.split_at(received.iter().position(|b| *b == b'\n').expect("a line") + 1);
    assert!(line == expected || line.len() + 4 == expected.len(), "{} bytes, not {}", line.len(), expected.len());
    assert_eq!(&rest[..5], b"a\0b\xff\n");
    assert!(rest[5..] == vec![0; 300_000], "{} zeros", rest.len() - 5);
    node.delete("c");
    node.end();
}

#[test]
fn a_big_write_after_a_partial_line_does_not_hang() {
    let mut node = Node::start();
    // The kernel wakes no reader when a writer blocks because the FIFO is not empty and has not enough room.
    node.shell("c", "i=0; while [ $i -lt 20 ]; do i=$((i+1)); printf part; dd if=/dev/zero bs=200000 count=1 2>/dev/null; echo; done");
    assert_eq!(node.wait("c").code, Some(0));
    assert_eq!(node.text("c").len(), 20 * 200_005);
    node.delete("c");
    node.end();
}

#[test]
fn a_partial_line_is_logged_before_it_ends() {
    let mut node = Node::start();
    node.shell("c", "printf 'name: '; sleep 1000");
    node.wait_for_entry("c", "stdout P name: ");
    node.delete("c");
    node.end();
}

#[test]
fn attached_clients_get_both_streams_until_the_end() {
    let mut node = Node::start();
    node.create("c", &["sh", "-c", "printf '$ '; echo bad >&2; echo done"]);
    let (mut out, stdout) = std::io::pipe().expect("pipe");
    let (mut err, stderr) = std::io::pipe().expect("pipe");
    let pipes = Attachments::new().with(Role::Stdout, stdout.into()).with(Role::Stderr, stderr.into());
    node.request(Request::Attach(Attach { container: "c".into() }), pipes).expect("attach");
    node.start_container("c").expect("start");
    let (mut one, mut two) = (String::new(), String::new());
    out.read_to_string(&mut one).expect("read");
    err.read_to_string(&mut two).expect("read");
    assert_eq!((one.as_str(), two.as_str()), ("$ done\n", "bad\n"));
    node.wait("c");
    node.delete("c");
    node.end();
}

#[test]
fn a_slow_client_delays_only_its_container() {
    let mut node = Node::start();
    node.create("slow", &["seq", "1", "100000"]);
    let (mut reader, stdout) = std::io::pipe().expect("pipe");
    let pipes = Attachments::new().with(Role::Stdout, stdout.into());
    node.request(Request::Attach(Attach { container: "slow".into() }), pipes).expect("attach");
    node.start_container("slow").expect("start");
    node.shell("other", "echo fine");
    node.wait("other");
    let mut received = String::new();
    reader.read_to_string(&mut received).expect("read");
    node.wait("slow");
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert!(received == expected && node.text("slow") == expected.as_bytes());
    ["slow", "other"].into_iter().for_each(|id| node.delete(id));
    node.end();
}
