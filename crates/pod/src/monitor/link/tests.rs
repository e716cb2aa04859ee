use std::{io::Read, os::fd::OwnedFd};

use futures_util::future::join_all;
use monitor_api::Role;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt},
    pipe::{PipeFlags, pipe_with},
};

use super::*;

/// Returns the daemon's end of a connection, and the end of a monitor that reads nothing.
pub(in super::super) fn hung_monitor() -> (Arc<Link>, OwnedFd) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("socketpair");
    sockopt::set_socket_send_buffer_size(&ours, 4096).expect("a small buffer");
    let timeouts = Timeouts { send: Duration::from_millis(100), answer: Duration::from_millis(600) };
    (Link::attach(Connection::new(ours), Arc::default(), timeouts).expect("a link"), theirs)
}

#[tokio::test]
async fn requests_to_a_hung_monitor_time_out_and_keep_no_descriptors() {
    let (link, theirs) = hung_monitor();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    let request = |_| {
        let attachments = Attachments::new().with(Role::Stdout, write.try_clone().expect("duplicate"));
        link.request(Request::Start { container: "c".into(), has_started: false }, attachments)
    };
    let all = tokio::time::timeout(Duration::from_secs(60), join_all((0..64).map(request)));
    let outcomes = all.await.expect("every request has a timeout");
    let messages: Vec<String> = outcomes.into_iter().map(|outcome| outcome.expect_err("hung").message).collect();
    for message in ["takes no request within 100ms", "does not answer within 600ms"] {
        assert!(messages.iter().any(|one| one.contains(message)), "{message}: {messages:?}");
    }
    assert!(link.pending.lock().expect("pending").as_ref().expect("connected").is_empty());
    // Neither the requests nor their callers hold a write end: end of file follows after those that were sent are
    // closed.
    drop((theirs, write, link));
    let mut rest = Vec::new();
    std::fs::File::from(read).read_to_end(&mut rest).expect("the end of the pipe");
}

#[tokio::test]
async fn requests_wait_for_room_and_are_all_sent() {
    let (link, theirs) = hung_monitor();
    let reader = std::thread::spawn(move || {
        // Shorter than the timeout of a request that waits.
        std::thread::sleep(Duration::from_millis(30));
        let mut packet = [0; 4096];
        let mut packets = 0;
        while packets < 64 && rustix::io::read(&theirs, &mut packet).is_ok_and(|length| length > 0) {
            packets += 1;
        }
        packets
    });
    let request = |_| link.request(Request::Start { container: "c".into(), has_started: false }, Attachments::new());
    for outcome in join_all((0..64).map(request)).await {
        let message = outcome.expect_err("no reply").message;
        assert!(message.contains("does not answer within 600ms"), "{message}");
    }
    drop(link);
    assert_eq!(reader.join().expect("the reader"), 64);
}

#[tokio::test]
async fn a_request_waits_for_the_programs_that_the_monitor_runs_for_it() {
    let (link, _theirs) = hung_monitor();
    let start = Request::Start { container: "c".into(), has_started: false };
    let request = link.request_of_programs(start, Attachments::new(), Duration::from_millis(250));
    let message = request.await.expect_err("no reply").message;
    assert!(message.contains("does not answer within 850ms"), "{message}");
}

#[tokio::test]
async fn a_request_whose_caller_gives_up_is_forgotten() {
    let (link, _theirs) = hung_monitor();
    let request = link.request(Request::Start { container: "c".into(), has_started: false }, Attachments::new());
    tokio::time::timeout(Duration::from_millis(50), request).await.expect_err("no reply");
    assert!(link.pending.lock().expect("pending").as_ref().expect("connected").is_empty());
}

/// Returns a connection with its reader, and the end of a monitor.
fn connected() -> (Arc<Link>, OwnedFd) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("socketpair");
    let link = Link::attach(Connection::new(ours), Arc::default(), TIMEOUTS).expect("a link");
    #[expect(clippy::disallowed_methods, reason = "no event is sent")]
    let (events, _) = mpsc::unbounded_channel();
    tokio::spawn(Arc::clone(&link).read(events));
    (link, theirs)
}

async fn start(link: &Link) -> Error {
    let request = Request::Start { container: "c".into(), has_started: false };
    link.request(request, Attachments::new()).await.expect_err("lost")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_closed_once_a_request_reports_its_loss() {
    for round in 0..200 {
        let (link, theirs) = connected();
        let killed = async { drop(theirs) };
        let (error, ()) = tokio::join!(start(&link), killed);
        assert_eq!((error.kind, link.is_closed()), (ErrorKind::Unavailable, true), "{round}");
        assert_eq!(start(&link).await.kind, ErrorKind::Unavailable, "{round}");
    }
}

#[tokio::test]
async fn a_request_to_a_monitor_that_is_gone_waits_for_the_end_of_the_connection() {
    let (link, theirs) = connected();
    drop(theirs);
    // On this thread the reader runs only when the request waits.
    assert_eq!((start(&link).await.kind, link.is_closed()), (ErrorKind::Unavailable, true));
}
