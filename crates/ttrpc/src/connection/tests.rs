use tokio::net::UnixStream;

use super::*;
use crate::stream::connect;

/// Answers `echo` with the argument, and never answers anything else.
fn echo() -> Service {
    Arc::new(|request: Request| match request.method.as_str() {
        "echo" => Box::pin(std::future::ready(Ok(request.payload))),
        _ => Box::pin(std::future::pending()),
    })
}

fn pair(service: Service) -> (Connection, Connection) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    (connect(ours, refuse_all()), connect(theirs, service))
}

#[tokio::test]
async fn requests_are_answered_in_both_directions() {
    let (client, server) = pair(echo());
    let argument = Status { code: 5, message: "x".repeat(100_000) };
    let answer = client.call("s", "echo", &argument, None).await.expect("an answer");
    assert_eq!(Status::decode(&*answer).expect("a status"), argument);
    let refused = server.call("s", "echo", &argument, None).await;
    assert!(matches!(refused, Err(CallError::Refused { code: code::UNIMPLEMENTED, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_answer_costs_the_timeout() {
    let (client, server) = pair(echo());
    let timeout = Duration::from_millis(20);
    let answer = client.call("s", "hang", &Status::default(), Some(timeout)).await;
    assert_eq!(answer, Err(CallError::Timeout(timeout)));
    let argument = Status::default();
    let hanging = client.call("s", "hang", &argument, None);
    let closing = async { server.close() };
    assert_eq!(tokio::join!(hanging, closing).0, Err(CallError::Closed));
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let client = connect(ours, refuse_all());
    tokio::io::AsyncWriteExt::write_all(&mut theirs, &[0xff; 20]).await.expect("sent");
    client.closed().await;
    assert_eq!(client.call("s", "echo", &Status::default(), None).await, Err(CallError::Closed));
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_sent() {
    let (client, _server) = pair(echo());
    let argument = Status { code: 0, message: "x".repeat(PAYLOAD_MAX) };
    let answer = client.call("s", "echo", &argument, None).await;
    assert!(matches!(answer, Err(CallError::TooLong(_))), "{answer:?}");
}
