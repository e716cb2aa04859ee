//! Port-forward over TCP, to listeners on this machine.

mod node;

use node::{TestServer, runtime::LocalRuntime, spdy, websocket, within_timeout};
use streaming::{Options, PortForward, Request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Returns a listener, its port, and a request to forward to it.
async fn listener(ports: bool) -> (TcpListener, String, Request) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    let ports = if ports { vec![port] } else { Vec::new() };
    (listener, port.to_string(), Request::PortForward(PortForward { sandbox: "127.0.0.1".into(), ports }))
}

/// Accepts connections and sends their data back.
fn echo(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
}

/// Opens an error stream and a data stream in the order in which kubectl does.
async fn pair(client: &mut spdy::Client, port: &str, request: &str) -> (u32, u32) {
    let error = client.open(&[("streamtype", "error"), ("port", port), ("requestid", request)]).await;
    client.send(error, &[], true).await;
    (error, client.open(&[("streamtype", "data"), ("port", port), ("requestid", request)]).await)
}

async fn connected(server: &TestServer, request: Request) -> spdy::Client {
    spdy::Client::new(server, request, Some("portforward.k8s.io")).await
}

#[tokio::test]
async fn many_connections_at_once() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    echo(tcp);
    let mut client = connected(&server, request).await;
    let mut pairs = Vec::new();
    for n in 0..100 {
        pairs.push(pair(&mut client, &port, &n.to_string()).await);
    }
    for (n, (_, data)) in pairs.iter().enumerate() {
        client.send(*data, format!("connection {n}").as_bytes(), n % 2 == 0).await;
    }
    for (n, (error, data)) in pairs.iter().enumerate() {
        let expected = format!("connection {n}");
        client.eventually("its data", |client| client.text(*data) == expected).await;
        if n % 2 == 0 {
            client.eventually("its end", |client| client.streams[data].fin && client.streams[error].fin).await;
            assert_eq!(client.text(*error), "");
        } else {
            assert!(!client.streams[data].fin);
        }
    }
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn each_direction_ends_independently() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    let mut client = connected(&server, request).await;
    let (error, data) = pair(&mut client, &port, "0").await;
    let (mut pod, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    // The client ends its direction first; the pod reads until then and keeps writing.
    client.send(data, b"question", true).await;
    let mut text = String::new();
    within_timeout("the end of the question", pod.read_to_string(&mut text)).await.expect("text");
    assert_eq!(text, "question");
    pod.write_all(b"answer").await.expect("write");
    client.eventually("the answer", |client| client.text(data) == "answer").await;
    assert!(!client.streams[&data].fin);
    drop(pod);
    client.eventually("its end", |client| client.streams[&data].fin && client.streams[&error].fin).await;
    // The pod ends its direction first; the client keeps writing.
    let (error, data) = pair(&mut client, &port, "1").await;
    let (mut pod, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    pod.shutdown().await.expect("end");
    client.eventually("its end", |client| client.streams[&data].fin).await;
    assert!(!client.streams[&error].fin);
    client.send(data, b"still", true).await;
    let mut text = String::new();
    within_timeout("the end", pod.read_to_string(&mut text)).await.expect("text");
    assert_eq!(text, "still");
    client.eventually("its end", |client| client.streams[&error].fin).await;
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn a_port_without_a_listener_is_reported_and_affects_no_other() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    echo(tcp);
    let (closed, nobody, _) = listener(false).await;
    drop(closed);
    let mut client = connected(&server, request).await;
    let (_, good) = pair(&mut client, &port, "good").await;
    let (error, data) = pair(&mut client, &nobody, "bad").await;
    client.eventually("the error", |client| client.streams[&error].fin && client.streams[&data].reset.is_some()).await;
    let message = client.text(error);
    assert!(message.starts_with(&format!("error forwarding port {nobody} to pod ")), "{message}");
    assert!(message.contains("refused"), "{message}");
    client.send(good, b"fine", true).await;
    client.eventually("its end", |client| client.streams[&good].fin && client.text(good) == "fine").await;
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn a_broken_connection_affects_no_other() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    let mut client = connected(&server, request).await;
    let (error, broken) = pair(&mut client, &port, "0").await;
    let (pod, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    let (_, good) = pair(&mut client, &port, "1").await;
    let (mut other, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    // Closing a socket with unread data resets the connection.
    client.send(broken, b"never read", false).await;
    within_timeout("bytes", pod.readable()).await.expect("bytes");
    drop(pod);
    client.eventually("its end", |client| client.streams[&broken].fin).await;
    client.control(3, 0, &[broken.to_be_bytes(), 5u32.to_be_bytes()].concat()).await;
    client.eventually("its end", |client| client.streams[&error].fin).await;
    assert_eq!(client.text(error), "", "a broken connection is not an error of the session");
    other.write_all(b"fine").await.expect("write");
    client.eventually("the other's bytes", |client| client.text(good) == "fine").await;
    // A client that resets a stream closes the pod's connection.
    client.control(3, 0, &[good.to_be_bytes(), 5u32.to_be_bytes()].concat()).await;
    let mut rest = Vec::new();
    let _ = within_timeout("its end", other.read_to_end(&mut rest)).await;
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn a_pod_that_does_not_read_blocks_others_only_temporarily() {
    let options = Options { stall_timeout: std::time::Duration::from_millis(200), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let (tcp, port, request) = listener(false).await;
    let mut client = connected(&server, request).await;
    let (_, stalled) = pair(&mut client, &port, "0").await;
    let (_pod, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    let (_, good) = pair(&mut client, &port, "1").await;
    let (mut other, _) = within_timeout("a connection", tcp.accept()).await.expect("a connection");
    within_timeout("sending all data", async {
        for _ in 0..1000 {
            client.send(stalled, &[0; 60_000], false).await;
        }
        client.send(good, b"fine", true).await;
    })
    .await;
    client.eventually("the stalled one's reset", |client| client.streams[&stalled].reset == Some(7)).await;
    let mut text = String::new();
    within_timeout("the other's bytes", other.read_to_string(&mut text)).await.expect("text");
    assert_eq!(text, "fine");
    drop((client, other));
    server.end().await;
}

#[tokio::test]
async fn streams_without_partner_time_out() {
    let options = Options { stream_timeout: std::time::Duration::from_millis(100), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let (_tcp, port, request) = listener(false).await;
    let mut client = connected(&server, request).await;
    let error = client.open(&[("streamtype", "error"), ("port", &port), ("requestid", "0")]).await;
    let data = client.open(&[("streamtype", "data"), ("port", &port), ("requestid", "1")]).await;
    client.eventually("both ends", |client| client.streams[&error].fin && client.streams[&data].reset.is_some()).await;
    assert!(client.text(error).contains("not opened in time"), "{}", client.text(error));
    // The session continues.
    client.ping(7).await;
    client.eventually("a pong", |client| client.pings.contains(&7)).await;
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn clients_without_request_ids_are_supported() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    echo(tcp);
    let mut client = spdy::Client::new(&server, request, None).await;
    let error = client.open(&[("streamtype", "error"), ("port", &port)]).await;
    let data = client.open(&[("streamtype", "data"), ("port", &port)]).await;
    client.send(data, b"old", true).await;
    client.eventually("the echo", |client| client.text(data) == "old" && client.streams[&error].fin).await;
    for bad in
        [&[("streamtype", "data")][..], &[("streamtype", "data"), ("port", "0")], &[("streamtype", "x"), ("port", "1")]]
    {
        let id = client.syn(bad).await;
        client.eventually("a refusal", |client| client.streams[&id].reset == Some(3)).await;
    }
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn websocket_has_two_channels_for_each_port() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(true).await;
    echo(tcp);
    let mut client = websocket::Client::new(&server, request, Some("v4.channel.k8s.io")).await;
    let number = port.parse::<u16>().expect("a port").to_le_bytes();
    for channel in [0, 1] {
        assert_eq!(client.take().await, Some((websocket::BINARY, vec![channel, number[0], number[1]])));
    }
    client.send(0, b"hello").await;
    assert_eq!(client.take().await, Some((websocket::BINARY, b"\0hello".to_vec())));
    client.frame(websocket::CLOSE, true, &1000u16.to_be_bytes()).await;
    assert_eq!(client.take().await, Some((websocket::CLOSE, 1000u16.to_be_bytes().to_vec())));
    assert_eq!(client.take().await, None);
    server.end().await;
}

/// Converts the messages of a WebSocket connection to a byte stream, over which the tunnelled SPDY runs.
async fn tunnel(mut client: websocket::Client) -> tokio::io::DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(theirs);
        let mut buffer = [0; 5000];
        loop {
            tokio::select! {
                length = from.read(&mut buffer) => match length {
                    Ok(length @ 1..) => client.frame(websocket::BINARY, true, &buffer[..length]).await,
                    _ => return,
                },
                message = client.take() => match message {
                    Some((websocket::BINARY, content)) => to.write_all(&content).await.expect("write"),
                    _ => return,
                },
            }
        }
    });
    ours
}

#[tokio::test]
async fn spdy_within_websocket() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    echo(tcp);
    let outer = websocket::Client::new(&server, request, Some("SPDY/3.1+portforward.k8s.io")).await;
    let mut client = spdy::Client::on(tunnel(outer).await);
    for n in 0..20 {
        let (error, data) = pair(&mut client, &port, &n.to_string()).await;
        client.send(data, &[n; 100_000], true).await;
        client.eventually("the echo", |client| client.streams[&data].fin && client.streams[&error].fin).await;
        assert_eq!(client.streams[&data].data, [n; 100_000]);
    }
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn a_client_that_disconnects_closes_its_connections() {
    let server = TestServer::new().await;
    let (tcp, port, request) = listener(false).await;
    let mut client = connected(&server, request).await;
    let mut pods: Vec<TcpStream> = Vec::new();
    for n in 0..10 {
        pair(&mut client, &port, &n.to_string()).await;
        pods.push(within_timeout("a connection", tcp.accept()).await.expect("a connection").0);
    }
    drop(client);
    for mut pod in pods {
        let mut rest = Vec::new();
        let _ = within_timeout("its end", pod.read_to_end(&mut rest)).await;
    }
    server.end().await;
}
