//! A test server, and the connections of its clients.

#![allow(dead_code)]

pub(crate) mod runtime;
pub(crate) mod spdy;
pub(crate) mod websocket;

use std::{future::Future, sync::Arc, time::Duration};

use streaming::{Options, Request, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

use runtime::LocalRuntime;

/// Timeout that only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for an expected event.
pub(crate) async fn within_timeout<T>(event: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(value) => value,
        Err(_) => panic!("timed out waiting for {event}"),
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(event: &str, condition: impl FnMut() -> bool) {
    testbed::wait_until_with(tokio::time::sleep, event, PATIENCE, condition).await;
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) server: Arc<Server<LocalRuntime>>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default(), LocalRuntime::default()).await
    }

    pub(crate) async fn with(options: Options, runtime: LocalRuntime) -> Self {
        let server = Arc::new(Server::bind(options, runtime).await.expect("listen on loopback"));
        let (stop, stopped) = oneshot::channel();
        let running = Arc::clone(&server);
        let task = tokio::spawn(async move { running.serve(async { drop(stopped.await) }).await });
        Self { server, stop, task }
    }

    /// Stops the server after all sessions have ended.
    pub(crate) async fn end(self) {
        let counts = || {
            let counts = self.server.counts();
            counts.exec.open + counts.attach.open + counts.port_forward.open
        };
        wait_until("the end of all sessions", || counts() == 0).await;
        self.stop.send(()).expect("the server is running");
        within_timeout("the end of the server", self.task).await.expect("no panic");
    }

    pub(crate) fn url(&self, request: Request) -> String {
        self.server.url(request).expect("a token")
    }
}

/// Connects and sends an upgrade request. Returns the connection and the head of the response.
pub(crate) async fn upgrade(url: &str, headers: &[(&str, &str)]) -> (TcpStream, String) {
    let rest = url.strip_prefix("http://").expect("an http URL");
    let (host, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(host).await.expect("connect");
    // Clients set this too: frames must be sent without delay.
    stream.set_nodelay(true).expect("a socket option");
    let mut request = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.expect("send a request");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match within_timeout("a response", stream.read(&mut byte)).await.expect("read a response") {
            0 => break,
            _ => head.push(byte[0]),
        }
    }
    (stream, String::from_utf8(head).expect("text").to_lowercase())
}
