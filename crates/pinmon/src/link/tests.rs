use std::fs::File;

use monitor_api::{ContainerDescription, ExitStatus, FailureKind, Holding, HoldingState, Role};
use rustix::{
    fd::{AsFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};

use super::*;

/// A link, its epoll instance, the queue of descriptors to be closed, and the end of the daemon.
struct Fixture {
    link: Link,
    epoll: Epoll,
    close_queue: CloseQueue,
    daemon: Connection,
}

impl Fixture {
    fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socketpair");
        let close_queue = CloseQueue::default();
        let mut link = Link::new(4, None, close_queue.clone());
        link.connect(Connection::new(ours));
        Self { link, epoll: Epoll::new().expect("epoll"), close_queue, daemon: Connection::new(theirs) }
    }

    fn reply(&mut self, seq: u64, attachments: Attachments) {
        self.link.reply(RequestId { link: 5, seq }, Ok((Reply::Done, attachments)), &self.epoll);
    }

    fn list(&mut self, seq: u64, key: &str) {
        self.link.list(RequestId { link: 5, seq }, Entry::Key(key.to_owned()), &self.epoll);
    }

    fn send_entry(&mut self, key: &str) -> bool {
        let file = null();
        let container = ContainerDescription { id: key.to_owned(), ..ContainerDescription::default() };
        let holding = Holding { container, state: HoldingState::Kept };
        let contents = EntryContents { holding, files: vec![(Role::Kept(0), file.as_fd())], program: None };
        self.link.send_entry(Some(contents), &self.epoll)
    }

    /// Fills the socket, and returns the number of frames that the daemon can read.
    fn fill(&mut self) -> u64 {
        let mut seq = 0;
        while self.link.is_flushed() {
            seq += 1;
            self.reply(seq, Attachments::new());
            assert!(self.link.flush(&self.epoll).is_none());
        }
        seq - 1
    }

    fn received(&self) -> (u64, Result<Reply, Failure>, Attachments) {
        match self.daemon.receive().expect("a frame") {
            (Envelope::Reply { seq, body, .. }, attachments) => (seq, body, attachments),
            (other, _) => panic!("not a reply: {other:?}"),
        }
    }
}

fn null() -> OwnedFd {
    File::open("/dev/null").expect("open /dev/null").into()
}

#[test]
fn entries_of_an_inventory_are_sent_between_the_frames_queued_before_and_after_them() {
    let mut test = Fixture::new();
    test.reply(1, Attachments::new());
    test.list(2, "a");
    test.list(2, "removed");
    test.reply(2, Attachments::new());
    assert!(matches!(test.link.flush(&test.epoll), Some(Entry::Key(key)) if key == "a"));
    assert!(test.link.awaits_entry() && test.send_entry("a"));
    assert!(matches!(test.link.flush(&test.epoll), Some(Entry::Key(key)) if key == "removed"));
    assert!(test.link.send_entry(None, &test.epoll));
    assert!(test.link.flush(&test.epoll).is_none() && test.link.is_flushed() && !test.link.awaits_entry());
    assert!(matches!(test.received(), (1, Ok(Reply::Done), _)));
    let (seq, body, attachments) = test.received();
    assert!(matches!(body, Ok(Reply::Holding(holding)) if holding.container.id == "a"));
    assert_eq!((seq, attachments.roles()), (2, vec![Role::Kept(0)]));
    assert!(matches!(test.received(), (2, Ok(Reply::Done), _)));
    assert!(matches!(test.daemon.receive(), Err(CodecError::WouldBlock)));
}

#[test]
fn an_entry_that_the_socket_does_not_take_is_sent_when_there_is_room() {
    let mut test = Fixture::new();
    let sent = test.fill();
    let peer = test.link.peer.as_mut().expect("a connection");
    assert!(peer.update_awaited_room() && !peer.update_awaited_room());
    test.list(0, "a");
    assert!(test.link.flush(&test.epoll).is_none());
    for seq in 1..=sent {
        assert_eq!(test.received().0, seq);
    }
    assert!(test.link.flush(&test.epoll).is_some() && test.send_entry("a"));
    assert_eq!((test.received().0, test.received().0), (sent + 1, 0));
    assert!(test.link.peer.as_mut().is_some_and(Peer::update_awaited_room));
}

#[test]
fn terminals_of_frames_that_were_not_sent_are_closed_by_another_process() {
    let mut test = Fixture::new();
    test.fill();
    test.reply(0, Attachments::new().with(Role::Terminal, null()).with(Role::Pidfd, null()));
    assert_eq!(test.close_queue.waiting().len(), 0);
    test.link.disconnect(&test.epoll);
    assert_eq!(test.close_queue.waiting().len(), 1);
    assert!(test.link.take_lost() && !test.link.take_lost());
}

#[test]
fn a_reply_to_a_request_of_an_earlier_connection_is_dropped() {
    let mut test = Fixture::new();
    let failure = Failure::new(FailureKind::State, "it has exited");
    test.link.reply(RequestId { link: 4, seq: 1 }, Err(failure.clone()), &test.epoll);
    test.link.reply(RequestId { link: 5, seq: 2 }, Err(failure.clone()), &test.epoll);
    assert!(test.link.flush(&test.epoll).is_none());
    assert!(matches!(test.received(), (2, Err(received), _) if received == failure));
}

#[test]
fn events_are_sent_only_after_hello() {
    let mut test = Fixture::new();
    let status = ExitStatus { code: Some(0), signal: None, oom_killed: false, at: 1 };
    let event = Event::Exited { container: "web".to_owned(), status };
    test.link.notify(event.clone(), &test.epoll);
    assert!(test.link.is_flushed());
    test.link.peer.as_mut().expect("a connection").greeted = true;
    test.link.notify(event.clone(), &test.epoll);
    assert!(test.link.flush(&test.epoll).is_none());
    assert!(matches!(test.daemon.receive(), Ok((Envelope::Event(received), _)) if received == event));
}
