//! Exec and attach over TCP, with commands on this machine.

mod node;

use node::{TestServer, runtime::LocalRuntime, spdy, upgrade, wait_until, websocket, within_timeout};
use streaming::{Attach, Control, Error, Exec, Options, Request, Session, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
const OUTPUT: Streams = Streams { stdin: false, stdout: true, stderr: true, tty: false };
const SUCCESS: &str = r#"{"status":"Success"}"#;

fn exec(script: &str, streams: Streams) -> Request {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    Request::Exec(Exec { container: "c".into(), command, streams })
}

/// Opens the streams in the order in which kubelet does.
async fn open_streams(client: &mut spdy::Client, streams: Streams, resize: bool) -> Vec<u32> {
    let mut ids = vec![client.open(&[("streamtype", "error")]).await];
    let requested =
        [("stdin", streams.stdin), ("stdout", streams.stdout), ("stderr", streams.stderr), ("resize", resize)];
    for (name, _) in requested.into_iter().filter(|(_, requested)| *requested) {
        ids.push(client.open(&[("streamtype", name)]).await);
    }
    ids
}

#[tokio::test]
async fn spdy_v4_carries_all_streams_and_the_exit_code() {
    let server = TestServer::new().await;
    let script = "cat; echo wrong >&2; exit 3";
    let mut client = spdy::Client::new(&server, exec(script, ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, ALL, false).await;
    let [error, stdin, stdout, stderr] = ids[..] else { panic!("{ids:?}") };
    client.send(stdin, b"hello ", false).await;
    client.send(stdin, b"world", true).await;
    client.drain().await;
    assert_eq!((client.text(stdout).as_str(), client.text(stderr).as_str()), ("hello world", "wrong\n"));
    let status: serde_json::Value = serde_json::from_str(&client.text(error)).expect("JSON");
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["reason"], "ExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "3");
    assert_eq!(client.goaway, Some(0));
    for id in [error, stdout, stderr] {
        assert!(client.streams[&id].fin, "stream {id} ended in order");
    }
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn older_spdy_protocols_send_text_or_nothing() {
    let server = TestServer::new().await;
    for protocol in [Some("v3.channel.k8s.io"), Some("v2.channel.k8s.io"), Some("channel.k8s.io"), None] {
        for (script, expected) in [("exit 4", "command terminated with non-zero exit code: exit code 4"), ("true", "")]
        {
            let mut client = spdy::Client::new(&server, exec(script, OUTPUT), protocol).await;
            let error = open_streams(&mut client, OUTPUT, false).await[0];
            client.drain().await;
            assert_eq!(client.text(error), expected, "{protocol:?}");
            assert!(client.streams[&error].fin);
        }
    }
    server.end().await;
}

#[tokio::test]
async fn a_large_output_arrives_whole() {
    let server = TestServer::new().await;
    let script = "head -c 20000000 /dev/zero";
    let mut client = spdy::Client::new(&server, exec(script, OUTPUT), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, OUTPUT, false).await;
    client.drain().await;
    assert_eq!(client.streams[&ids[1]].data.len(), 20_000_000);
    assert_eq!(client.text(ids[0]), SUCCESS);
    server.end().await;
}

#[tokio::test]
async fn a_large_input_arrives_whole() {
    let server = TestServer::new().await;
    let streams = Streams { stderr: false, ..ALL };
    let mut client = spdy::Client::new(&server, exec("cksum; wc -c", streams), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, streams, false).await;
    for n in 0..300u32 {
        client.send(ids[1], &vec![n as u8; 10_007 + n as usize], false).await;
    }
    client.send(ids[1], &[], true).await;
    client.drain().await;
    let bytes: u32 = (0..300).map(|n| 10_007 + n).sum();
    let text = client.text(ids[2]);
    assert!(text.contains(&format!(" {bytes}\n")), "{text}");
    server.end().await;
}

#[tokio::test]
async fn a_command_that_cannot_start_is_reported() {
    let server = TestServer::new().await;
    let request =
        |streams| Request::Exec(Exec { container: "c".into(), command: vec!["/no/such/program".into()], streams });
    let mut client = spdy::Client::new(&server, request(OUTPUT), Some("v4.channel.k8s.io")).await;
    let error = open_streams(&mut client, OUTPUT, false).await[0];
    client.drain().await;
    let status: serde_json::Value = serde_json::from_str(&client.text(error)).expect("JSON");
    assert_eq!(status["code"], 500);
    assert!(status["message"].as_str().expect("text").contains("No such file"), "{status}");
    let mut client = websocket::Client::new(&server, request(OUTPUT), Some("v5.channel.k8s.io")).await;
    let (channels, closed) = client.all().await;
    assert!(String::from_utf8_lossy(&channels[3]).contains("InternalError"));
    assert_eq!(closed, 1000);
    server.end().await;
}

#[tokio::test]
async fn terminals_change_their_size() {
    let runtime = LocalRuntime::default();
    let server = TestServer::with(Options::default(), runtime.clone()).await;
    let streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let mut client = spdy::Client::new(&server, exec("read line", streams), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, streams, true).await;
    client.send(ids[3], b"{\"Width\":80,\"Height\":24}\n{\"Wid", false).await;
    client.send(ids[3], b"th\":100,\"Height\":50}\n", false).await;
    let resized =
        || runtime.sizes.lock().expect("not poisoned").last() == Some(&oci::TerminalSize { width: 100, height: 50 });
    wait_until("a size", resized).await;
    client.send(ids[1], b"\n", false).await;
    client.drain().await;
    let mut client = websocket::Client::new(&server, exec("read line", streams), Some("v5.channel.k8s.io")).await;
    client.send(4, b"{\"Width\":7,\"Height\":8}").await;
    let resized =
        || runtime.sizes.lock().expect("not poisoned").last() == Some(&oci::TerminalSize { width: 7, height: 8 });
    wait_until("a size", resized).await;
    client.send(0, b"\n").await;
    assert_eq!(client.all().await.1, 1000);
    server.end().await;
}

#[tokio::test]
async fn websocket_v5_can_close_only_the_input() {
    let server = TestServer::new().await;
    let mut client =
        websocket::Client::new(&server, exec("cat; echo no >&2; exit 5", ALL), Some("v5.channel.k8s.io")).await;
    assert_eq!(client.take().await, Some((websocket::BINARY, vec![1])), "the session starts");
    client.frame(websocket::PING, true, b"alive?").await;
    assert_eq!(client.take().await, Some((websocket::PONG, b"alive?".to_vec())));
    client.send(0, b"one ").await;
    // A fragmented message, and a ping between its fragments.
    client.frame(websocket::BINARY, false, &[0]).await;
    client.frame(websocket::PING, true, b"").await;
    client.frame(0, false, b"two").await;
    client.frame(0, true, b" three").await;
    // The pong and the output of the command may arrive in either order.
    let mut seen = [client.take().await, client.take().await].map(|frame| frame.map(|(opcode, _)| opcode));
    seen.sort_unstable();
    assert_eq!(seen, [Some(websocket::BINARY), Some(websocket::PONG)]);
    client.send(255, &[0]).await;
    let mut rest = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    while let Some((opcode, content)) = client.take().await {
        match opcode {
            websocket::BINARY => rest[usize::from(content[0])].extend(&content[1..]),
            websocket::CLOSE => assert_eq!(content, 1000u16.to_be_bytes()),
            _ => assert_eq!(opcode, websocket::PONG),
        }
    }
    assert_eq!(rest[2], b"no\n");
    assert!(String::from_utf8_lossy(&rest[3]).contains(r#""message":"5""#));
    server.end().await;
}

#[tokio::test]
async fn older_websocket_protocols() {
    let server = TestServer::new().await;
    for protocol in [Some("v4.channel.k8s.io"), Some("channel.k8s.io"), None] {
        let mut client =
            websocket::Client::new(&server, exec("echo out; echo err >&2; exit 6", OUTPUT), protocol).await;
        let (channels, closed) = client.all().await;
        assert_eq!((&channels[1][..], &channels[2][..], closed), (&b"out\n"[..], &b"err\n"[..], 1000));
        let status = String::from_utf8_lossy(&channels[3]).into_owned();
        assert_eq!(status.starts_with('{'), protocol == Some("v4.channel.k8s.io"), "{status}");
        assert!(status.contains('6'));
    }
    for protocol in ["v4.base64.channel.k8s.io", "base64.v4.channel.k8s.io", "base64.channel.k8s.io"] {
        let streams = Streams { stderr: false, ..ALL };
        let mut client = websocket::Client::new(&server, exec("head -n 1", streams), Some(protocol)).await;
        assert_eq!(client.take().await, Some((websocket::TEXT, b"1".to_vec())));
        client.frame(websocket::TEXT, true, b"0aGVsbG8K").await;
        assert_eq!(client.take().await, Some((websocket::TEXT, b"1aGVsbG8K".to_vec())), "{protocol}");
        while client.take().await.is_some() {}
    }
    server.end().await;
}

/// Returns a closure that checks whether the process whose id is in `stdout` is running.
async fn is_running(stdout: String) -> impl FnMut() -> bool {
    let path = format!("/proc/{}/stat", stdout.trim());
    move || std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_command() {
    let server = TestServer::new().await;
    let script = "echo $$; exec sleep 1000";
    let mut client = spdy::Client::new(&server, exec(script, ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, ALL, false).await;
    client.eventually("a line", |client| client.text(ids[2]).ends_with('\n')).await;
    let mut alive = is_running(client.text(ids[2])).await;
    assert!(alive());
    drop(client);
    wait_until("the end of the command", || !alive()).await;

    let mut client = websocket::Client::new(&server, exec(script, ALL), Some("v5.channel.k8s.io")).await;
    client.take().await;
    let line = client.take().await.expect("a line").1;
    let mut alive = is_running(String::from_utf8_lossy(&line[1..]).into_owned()).await;
    assert!(alive());
    drop(client);
    wait_until("the end of the command", || !alive()).await;
    server.end().await;
}

#[tokio::test]
async fn a_disconnection_is_noticed_while_the_connection_is_not_read() {
    let server = TestServer::new().await;
    let script = "echo $$; exec sleep 1000";
    let mut client = spdy::Client::new(&server, exec(script, ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, ALL, false).await;
    client.eventually("a line", |client| client.text(ids[2]).ends_with('\n')).await;
    let mut alive = is_running(client.text(ids[2])).await;
    // The command does not read its input, so the connection is blocked when a write times out.
    let stuck = async {
        loop {
            client.send(ids[1], &[0; 10_000], false).await;
        }
    };
    assert!(tokio::time::timeout(std::time::Duration::from_secs(2), stuck).await.is_err());
    assert!(alive());
    drop(client);
    wait_until("the end of the command", || !alive()).await;
    server.end().await;
}

#[tokio::test]
async fn output_waits_for_a_client_that_does_not_read() {
    let server = TestServer::new().await;
    let request = exec("echo $$; exec yes", OUTPUT);
    let mut client = spdy::Client::new(&server, request, Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, OUTPUT, false).await;
    client.eventually("a line", |client| client.text(ids[1]).contains('\n')).await;
    let text = client.text(ids[1]);
    let path = format!("/proc/{}/io", text.lines().next().expect("a line"));
    let written = || std::fs::read_to_string(&path).expect("it runs").lines().nth(1).expect("wchar").to_owned();
    // The count stops increasing when pipe and socket are full.
    let mut last = written();
    within_timeout("a full pipe", async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let now = written();
            if now == last {
                return;
            }
            last = now;
        }
    })
    .await;
    let bytes: u64 = last.rsplit(' ').next().expect("a number").parse().expect("a number");
    assert!(bytes < 64 << 20, "{bytes} bytes were read from a command whose client reads nothing");
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn windows_of_a_client_that_uses_them_are_obeyed() {
    let server = TestServer::new().await;
    let script = "head -c 300000 /dev/zero";
    let mut client = spdy::Client::new(&server, exec(script, OUTPUT), Some("v4.channel.k8s.io")).await;
    // SETTINGS_INITIAL_WINDOW_SIZE: 1000 bytes.
    client.control(4, 0, &[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 3, 0xe8]).await;
    let ids = open_streams(&mut client, OUTPUT, false).await;
    client.eventually("a window's worth", |client| client.streams[&ids[1]].data.len() >= 1000).await;
    client.ping(1).await;
    client.eventually("a pong", |client| client.pings.contains(&1)).await;
    assert_eq!(client.streams[&ids[1]].data.len(), 1000);
    let open = |stream: u32, delta: u32| [stream.to_be_bytes(), delta.to_be_bytes()].concat();
    client.control(9, 0, &open(ids[1], 500_000)).await;
    client.eventually("the connection's window's worth", |client| client.streams[&ids[1]].data.len() >= 65_536).await;
    client.ping(3).await;
    client.eventually("a pong", |client| client.pings.contains(&3)).await;
    assert_eq!(client.streams[&ids[1]].data.len(), 65_536);
    client.control(9, 0, &open(0, 500_000)).await;
    client.drain().await;
    assert_eq!(client.streams[&ids[1]].data.len(), 300_000);
    assert_eq!(client.text(ids[0]), SUCCESS);
    server.end().await;
}

#[tokio::test]
async fn resetting_an_output_stream_ends_its_writer() {
    let server = TestServer::new().await;
    let mut client = spdy::Client::new(&server, exec("yes; echo $? >&2", OUTPUT), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, OUTPUT, false).await;
    client.control(3, 0, &[ids[1].to_be_bytes(), 5u32.to_be_bytes()].concat()).await;
    client.drain().await;
    assert!(client.text(ids[2]).contains("141") || client.text(ids[2]).contains('1'), "{}", client.text(ids[2]));
    assert_eq!(client.text(ids[0]), SUCCESS);
    server.end().await;
}

struct Never;

impl Control for Never {
    fn resize(&self, _: oci::TerminalSize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {})
    }

    fn wait(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<i32, Error>> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn attach_ends_with_the_output_or_with_the_input_if_it_stays_open() {
    let runtime = LocalRuntime::default();
    let server = TestServer::with(Options::default(), runtime.clone()).await;
    let streams = Streams { stderr: false, ..ALL };
    let attach = || Request::Attach(Attach { container: "c".into(), streams });
    for ends_with_input in [true, false] {
        let (mut output, stdout) = tokio::io::duplex(100);
        let (stdin, mut input) = tokio::io::duplex(100);
        let (stdin, stdout) = (Some(Box::new(stdin) as _), Some(Box::new(stdout) as _));
        let session = Session { stdin, stdout, stderr: None, control: Box::new(Never), ends_with_input };
        runtime.attached.lock().expect("not poisoned").push(session);
        let mut client = spdy::Client::new(&server, attach(), Some("v4.channel.k8s.io")).await;
        let ids = open_streams(&mut client, streams, false).await;
        client.send(ids[1], b"in", true).await;
        let mut text = String::new();
        within_timeout("input", input.read_to_string(&mut text)).await.expect("input");
        assert_eq!(text, "in");
        if !ends_with_input {
            output.write_all(b"out").await.expect("output");
            client.eventually("output", |client| client.text(ids[2]) == "out").await;
            drop(output);
        }
        client.drain().await;
        assert_eq!(client.text(ids[0]), SUCCESS);
    }
    let mut client = websocket::Client::new(&server, attach(), Some("v5.channel.k8s.io")).await;
    let (channels, _) = client.all().await;
    let status = String::from_utf8_lossy(&channels[3]).into_owned();
    assert!(status.contains("error attaching to container: not running"), "{status}");
    server.end().await;
}

#[tokio::test]
async fn an_idle_session_ends() {
    let options = Options { idle_timeout: std::time::Duration::from_millis(300), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let mut client = spdy::Client::new(&server, exec("echo $$; exec sleep 1000", ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, ALL, false).await;
    client.eventually("a line", |client| client.text(ids[2]).ends_with('\n')).await;
    let mut alive = is_running(client.text(ids[2])).await;
    client.drain().await;
    wait_until("the end of the command", || !alive()).await;
    let script = "echo $$; exec sleep 1000";
    let mut client = websocket::Client::new(&server, exec(script, ALL), Some("v5.channel.k8s.io")).await;
    client.take().await;
    let line = client.take().await.expect("a line").1;
    let mut alive = is_running(String::from_utf8_lossy(&line[1..]).into_owned()).await;
    while client.take().await.is_some() {}
    wait_until("the end of the command", || !alive()).await;
    server.end().await;
}

#[tokio::test]
async fn streams_that_are_not_opened_in_time_end_the_session() {
    let options = Options { stream_timeout: std::time::Duration::from_millis(100), ..Options::default() };
    let server = TestServer::with(options, LocalRuntime::default()).await;
    let mut client = spdy::Client::new(&server, exec("true", ALL), Some("v4.channel.k8s.io")).await;
    client.open(&[("streamtype", "error")]).await;
    client.drain().await;
    assert_eq!(client.goaway, Some(0));
    server.end().await;
}

#[tokio::test]
async fn unexpected_streams_are_refused() {
    let server = TestServer::new().await;
    let mut client = spdy::Client::new(&server, exec("read line", ALL), Some("v4.channel.k8s.io")).await;
    let error = client.open(&[("streamtype", "error")]).await;
    for headers in [&[("streamtype", "error")][..], &[("streamtype", "none")], &[]] {
        let id = client.syn(headers).await;
        client.eventually("a refusal", |client| client.streams[&id].reset == Some(3)).await;
    }
    let mut ids = Vec::new();
    for name in ["stdin", "stdout", "stderr"] {
        ids.push(client.open(&[("streamtype", name)]).await);
    }
    let late = client.syn(&[("streamtype", "resize")]).await;
    client.eventually("a refusal", |client| client.streams[&late].reset == Some(3)).await;
    client.send(ids[0], b"\n", true).await;
    client.drain().await;
    assert_eq!(client.text(error), SUCCESS);
    server.end().await;
}

#[tokio::test]
async fn the_server_ends_with_its_sessions() {
    let server = TestServer::new().await;
    let mut client = spdy::Client::new(&server, exec("echo $$; exec sleep 1000", ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut client, ALL, false).await;
    client.eventually("a line", |client| client.text(ids[2]).ends_with('\n')).await;
    let mut alive = is_running(client.text(ids[2])).await;
    server.stop.send(()).expect("the server is running");
    within_timeout("the end of the server", server.task).await.expect("no panic");
    wait_until("the end of the command", || !alive()).await;
    client.drain().await;
}

#[tokio::test]
async fn a_url_is_valid_once_and_for_its_session() {
    let server = TestServer::new().await;
    let spdy = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
    let url = server.url(exec("true", OUTPUT));
    assert!(upgrade(&url.replace("/exec/", "/attach/"), &spdy).await.1.starts_with("http/1.1 404"));
    assert!(upgrade(&url, &spdy).await.1.starts_with("http/1.1 404"), "a wrong path uses the token up");
    let url = server.url(exec("true", OUTPUT));
    let first = upgrade(&url, &spdy).await;
    assert!(first.1.starts_with("http/1.1 101"));
    assert!(upgrade(&url, &spdy).await.1.starts_with("http/1.1 404"));
    for bad in ["/exec/", "/", "/exec", "/exec/a/b", "/none/x"] {
        let base = url.split("/exec/").next().expect("a base");
        assert!(upgrade(&format!("{base}{bad}"), &spdy).await.1.starts_with("http/1.1 404"), "{bad}");
    }
    drop(first);
    server.end().await;
}

#[tokio::test]
async fn unsupported_protocols_are_refused_with_alternatives() {
    let server = TestServer::new().await;
    let url = || server.url(exec("true", OUTPUT));
    let head = upgrade(&url(), &[("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v9.channel.k8s.io")]).await.1;
    assert!(head.starts_with("http/1.1 403"), "{head}");
    assert!(head.contains("x-accepted-stream-protocol-versions: v4.channel.k8s.io\r\n"), "{head}");
    let head = upgrade(&url(), &[("Upgrade", "h2c")]).await.1;
    assert!(head.starts_with("http/1.1 426"), "{head}");
    let head = upgrade(&url(), &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "8")]).await.1;
    assert!(head.contains("sec-websocket-version: 13\r\n"), "{head}");
    let key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let all = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), key, ("Sec-WebSocket-Protocol", "chat")];
    assert!(upgrade(&url(), &all).await.1.starts_with("http/1.1 403"));
    assert!(upgrade(&url(), &all[..2]).await.1.starts_with("http/1.1 400"));
    server.end().await;
}

#[tokio::test]
async fn invalid_input_ends_only_its_own_connection() {
    let server = TestServer::new().await;
    let mut good = spdy::Client::new(&server, exec("read line; echo $line", ALL), Some("v4.channel.k8s.io")).await;
    let ids = open_streams(&mut good, ALL, false).await;
    for invalid in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
        &[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1],
    ] {
        let mut client = spdy::Client::new(&server, exec("true", ALL), Some("v4.channel.k8s.io")).await;
        client.wire.write_all(invalid).await.expect("send");
        client.wire.shutdown().await.expect("end");
        client.drain().await;
        let mut client = websocket::Client::new(&server, exec("true", ALL), Some("v5.channel.k8s.io")).await;
        client.wire.write_all(invalid).await.expect("send");
        client.wire.shutdown().await.expect("end");
        while client.take().await.is_some() {}
    }
    good.send(ids[1], b"still here\n", true).await;
    good.drain().await;
    assert_eq!(good.text(ids[2]), "still here\n");
    server.end().await;
}
