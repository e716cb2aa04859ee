//! Requests to the agent in a guest, which counts as hostile: every answer is bounded and has a deadline, and one that
//! does not keep to the contract ends the connection.

mod connection;
mod error;
mod requests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent_api::Hello;
use tokio::net::UnixStream;

use connection::Connection;
pub use error::{Error, ErrorKind};

/// The agent of a guest, over a connection of its own. Clones share the connection; dropping the last one closes it.
#[derive(Clone)]
pub struct Guest {
    connection: Arc<Connection>,
    hello: Arc<Hello>,
    timeout: Duration,
}

impl Guest {
    /// Waits until the agent introduces itself on a new connection, for at most `boot`. `timeout` is the time limit of each
    /// later request but [`Guest::wait`]. Needs the runtime of tokio.
    ///
    /// # Errors
    /// `Timeout` if it stays silent, `Gone` if the virtual machine ends, `Protocol` for an agent of another version.
    pub async fn connect(socket: UnixStream, boot: Duration, timeout: Duration) -> Result<Self, Error> {
        let operation = "wait for the agent in the guest";
        let (connection, hello) = Connection::open(socket);
        let hello = match tokio::time::timeout(boot, hello).await {
            Ok(hello) => hello.map_err(|error| error.during(operation))?,
            Err(_) => {
                let cause = format!("it has not answered for {} s", boot.as_secs());
                return Err(Error::new(ErrorKind::Timeout, operation, cause));
            }
        };
        if hello.version != agent_api::VERSION {
            let cause = format!(
                "it implements version {} of the contract, and this program version {}; make the image again",
                hello.version,
                agent_api::VERSION
            );
            return Err(Error::new(ErrorKind::Protocol, operation, cause));
        }
        connection.mark_received();
        Ok(Self { connection, hello: Arc::new(hello), timeout })
    }

    /// Returns what the agent reported about itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns when something arrived from the agent for the last time: an answer, also one that came too late, or its
    /// introduction.
    pub fn last_received(&self) -> Instant {
        self.connection.last_received()
    }

    /// Closes the connection for all who use it; requests without an answer fail.
    pub fn close(&self) {
        self.connection.end();
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use agent_api::{Answer, Call, Decoder, Failure, FailureKind, ProcessId, Reply, Request, encode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn hello() -> Vec<u8> {
        let hello = Hello { version: agent_api::VERSION, agent: "test".into(), kernel: "6".into() };
        encode(&hello).expect("a frame")
    }

    /// Returns a guest and the other end of its connection.
    async fn guest() -> (Guest, UnixStream) {
        let (near, mut far) = UnixStream::pair().expect("sockets");
        far.write_all(&hello()).await.expect("write");
        (Guest::connect(near, SECOND, SECOND).await.expect("connect"), far)
    }

    async fn next_call(socket: &mut UnixStream, decoder: &mut Decoder) -> Call {
        loop {
            if let Some(call) = decoder.take_frame().expect("a frame") {
                return call;
            }
            let mut buffer = [0; 4096];
            let n = socket.read(&mut buffer).await.expect("read");
            decoder.push(&buffer[..n]);
        }
    }

    #[tokio::test]
    async fn answers_arrive_in_any_order() {
        let (guest, mut far) = guest().await;
        let waiting = tokio::spawn({
            let guest = guest.clone();
            async move { guest.wait(&ProcessId::container("web")).await }
        });
        let mut decoder = Decoder::default();
        let wait = next_call(&mut far, &mut decoder).await;
        assert!(matches!(wait.request, Request::Wait { .. }));
        let pinging = tokio::spawn({
            let guest = guest.clone();
            async move { guest.ping().await }
        });
        let ping = next_call(&mut far, &mut decoder).await;
        far.write_all(&encode(&Answer { id: ping.id, result: Ok(Reply::Done) }).expect("a frame"))
            .await
            .expect("write");
        pinging.await.expect("a task").expect("an answer");
        let failure = Failure::new(FailureKind::NotFound, "the guest\u{1b} does not have it");
        far.write_all(&encode(&Answer { id: wait.id, result: Err(failure) }).expect("a frame")).await.expect("write");
        let error = waiting.await.expect("a task").expect_err("refused");
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.to_string(), "wait for container web in the guest: the guest does not have it");
    }

    #[tokio::test]
    async fn silence_garbage_and_the_end_are_errors() {
        let (guest, mut far) = guest().await;
        assert_eq!(guest.ping().await.expect_err("no answer").kind, ErrorKind::Timeout);
        assert!(!guest.is_closed(), "an answer that is late disturbs no other request");
        let before = guest.last_received();
        let ping = next_call(&mut far, &mut Decoder::default()).await;
        far.write_all(&encode(&Answer { id: ping.id, result: Ok(Reply::Done) }).expect("a frame"))
            .await
            .expect("write");
        while guest.last_received() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        far.write_all(b"\xff\xff\xff\xffgarbage").await.expect("write");
        guest.closed().await;
        assert_eq!(guest.ping().await.expect_err("closed").kind, ErrorKind::Gone);

        let (near, _far) = UnixStream::pair().expect("sockets");
        let error = Guest::connect(near, Duration::from_millis(50), SECOND).await.err().expect("silence");
        assert_eq!(error.kind, ErrorKind::Timeout);

        let (near, far) = UnixStream::pair().expect("sockets");
        drop(far);
        assert_eq!(Guest::connect(near, SECOND, SECOND).await.err().expect("closed").kind, ErrorKind::Gone);

        let (near, mut far) = UnixStream::pair().expect("sockets");
        let other = Hello { version: 999, agent: String::new(), kernel: String::new() };
        far.write_all(&encode(&other).expect("a frame")).await.expect("write");
        let error = Guest::connect(near, SECOND, SECOND).await.err().expect("another version");
        assert!(error.to_string().contains("make the image again"), "{error}");
    }

    #[tokio::test]
    async fn a_closed_connection_ends_for_all_who_hold_it() {
        let (guest, mut far) = guest().await;
        let waiting = tokio::spawn({
            let guest = guest.clone();
            async move { guest.wait(&ProcessId::container("web")).await }
        });
        next_call(&mut far, &mut Decoder::default()).await;
        guest.close();
        assert_eq!(waiting.await.expect("a task").expect_err("closed").kind, ErrorKind::Gone);
        assert_eq!(guest.ping().await.expect_err("closed").kind, ErrorKind::Gone);
    }

    #[tokio::test]
    async fn a_guest_that_does_not_read_delays_a_request_by_its_timeout() {
        let (guest, _far) = guest().await;
        let mut resources = oci::Resources::default();
        resources.unified.insert("x".repeat(1 << 20), String::new());
        let error = guest.update("web", resources).await.expect_err("it does not read");
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert!(guest.is_closed(), "the frame was cut");
        assert_eq!(guest.ping().await.expect_err("closed").kind, ErrorKind::Gone);
    }
}
