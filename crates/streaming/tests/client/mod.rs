//! What the tests connect with, and what they serve.

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

use runtime::Programs;

/// Only so that a test that hangs ends: nothing is measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must come.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it did not come"),
    }
}

/// Asks again until it is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    soon(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A server that runs.
pub(crate) struct Served {
    pub(crate) server: Arc<Server<Programs>>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default(), Programs::default()).await
    }

    pub(crate) async fn with(options: Options, programs: Programs) -> Self {
        let server = Arc::new(Server::bind(options, programs).await.expect("listen on loopback"));
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&server);
        let task = tokio::spawn(async move { serving.serve(async { drop(stopped.await) }).await });
        Self { server, stop, task }
    }

    /// Ends it, and looks whether anything is left.
    pub(crate) async fn end(self) {
        let counts = || {
            let counts = self.server.counts();
            counts.exec.open + counts.attach.open + counts.port_forward.open
        };
        until("the end of all sessions", || counts() == 0).await;
        self.stop.send(()).expect("it runs");
        soon("the end of the server", self.task).await.expect("no panic");
    }

    pub(crate) fn url(&self, request: Request) -> String {
        self.server.url(request).expect("a token")
    }
}

/// A connection after its request, and the head of the answer.
pub(crate) async fn upgrade(url: &str, headers: &[(&str, &str)]) -> (TcpStream, String) {
    let rest = url.strip_prefix("http://").expect("an http URL");
    let (host, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(host).await.expect("connect");
    // As clients have it: frames must not wait for each other.
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
        match soon("an answer", stream.read(&mut byte)).await.expect("an answer") {
            0 => break,
            _ => head.push(byte[0]),
        }
    }
    (stream, String::from_utf8(head).expect("text").to_lowercase())
}
