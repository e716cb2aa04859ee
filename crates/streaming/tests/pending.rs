//! Connections that do not request a session.

mod node;

use std::time::Duration;

use node::{TestServer, runtime::LocalRuntime, spdy, within_timeout};
use streaming::{Exec, Options, Request, Streams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const OUTPUT: Streams = Streams { stdin: false, stdout: true, stderr: true, tty: false };

fn echo() -> Request {
    Request::Exec(Exec {
        container: "c".into(),
        command: ["echo", "served"].map(str::to_owned).to_vec(),
        streams: OUTPUT,
    })
}

async fn connect(server: &TestServer) -> TcpStream {
    let url = server.url(echo());
    let host = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("a host");
    TcpStream::connect(host).await.expect("connect")
}

/// Reports whether the server has closed the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(1), stream.read(&mut [0])).await.is_ok()
}

#[tokio::test]
async fn idle_connections_do_not_lock_clients_out() {
    // The timeout is so long that it cannot influence this test.
    let options = Options { head_timeout: Duration::from_secs(3600), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let mut silent = Vec::new();
    for n in 0..520 {
        let mut stream = connect(&server).await;
        if n % 2 == 0 {
            stream.write_all(b"POST /exec/").await.expect("half a request");
        }
        silent.push(stream);
    }
    let mut client = spdy::Client::new(&server, echo(), Some("v4.channel.k8s.io")).await;
    client.open(&[("streamtype", "error")]).await;
    let stdout = client.open(&[("streamtype", "stdout")]).await;
    client.open(&[("streamtype", "stderr")]).await;
    client.drain().await;
    assert_eq!(client.text(stdout), "served\n");
    assert!(is_closed(&mut silent[0]).await, "the oldest connection is evicted");
    assert!(!is_closed(silent.last_mut().expect("the newest")).await);
    drop((silent, client));
    server.end().await;
}

#[tokio::test]
async fn a_client_that_sends_no_request_in_time_is_disconnected() {
    let options = Options { head_timeout: Duration::from_millis(100), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let mut slow = connect(&server).await;
    slow.write_all(b"POST /exec/x HTTP/1.1\r\n").await.expect("half a request");
    let mut rest = Vec::new();
    // The connection may be reset, because the server closes it without having read all data.
    let _ = within_timeout("the end of the connection", slow.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    server.end().await;
}
