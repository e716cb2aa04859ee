//! The server of `examples/server`, with a few tenants. Needs root.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use netns::{Namespace, PinDir};
use testbed::{Namespaces, on_a_node, wait_until};

#[expect(dead_code, reason = "the main function of the example")]
#[path = "../examples/server/main.rs"]
mod server;

const LIMIT: Duration = Duration::from_secs(10);
const METRICS: SocketAddr = local(9464);

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Runs the server on a thread, until the process of the test ends.
fn start(shards: usize) -> PinDir {
    let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).unwrap();
    std::fs::create_dir_all("/run/content/a").unwrap();
    std::fs::write("/run/content/a/large.txt", "x".repeat(1_000_000)).unwrap();
    let content = Some("/run/content".into());
    let options =
        server::Options { metrics: Some(METRICS), content, shards, connections: 8, ..server::Options::default() };
    thread::spawn(move || server::serve(&options).unwrap());
    pins
}

fn tenant(pins: &PinDir, name: &str) -> Namespace {
    let namespace = Namespace::create().unwrap();
    pins.pin(name, &namespace).unwrap();
    wait_until("the tenant is served", LIMIT, || namespace.tcp_stream(local(80)).is_ok());
    namespace
}

/// Sends a text over a new connection, and returns everything that comes back.
fn exchange(mut stream: TcpStream, request: &str) -> String {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn echo(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, text.as_bytes());
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: tenant\r\nConnection: close\r\n\r\n")
}

/// Returns the metrics of all tenants, by name and tenant.
fn metrics() -> HashMap<String, u64> {
    let page = exchange(TcpStream::connect(METRICS).unwrap(), "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let samples = body.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Tenants come and go while others are served, and every answer is of the right one.
fn every_answer_is_of_the_right_tenant(shards: usize) {
    let pins = start(shards);
    let mut tenants: Vec<(String, Namespace)> = Vec::new();
    for number in 0..6 {
        let name = format!("tenant-{number}");
        tenants.push((name.clone(), tenant(&pins, &name)));
        for (name, namespace) in &tenants {
            let answer = exchange(namespace.tcp_stream(local(80)).unwrap(), &get("/"));
            let body = format!("\r\n\r\ntenant {name}\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&body), "{answer}");
            echo(&mut namespace.tcp_stream(local(7)).unwrap(), name);
        }
    }
    let (name, gone) = tenants.remove(2);
    let mut open = gone.tcp_stream(local(7)).unwrap();
    echo(&mut open, "x");
    let counted = metrics();
    let value = |metric: &str, tenant: &str| counted.get(&format!("tenant_{metric}{{tenant=\"{tenant}\"}}")).copied();
    assert_eq!(value("connections_open", &name), Some(1));
    // Four rounds of both services, and one connection to see whether it is served, at least.
    assert!(value("connections_accepted_total", &name).unwrap() >= 10, "{counted:?}");
    assert!(value("received_bytes_total", &name).unwrap() > 4 * 8 && value("errors_total", &name) == Some(0));
    assert_eq!(value("http_requests_total", "tenant-5"), Some(1));
    pins.unpin(&name).unwrap();
    open.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(open.read(&mut [0]).unwrap(), 0, "its connections are closed");
    assert!(gone.tcp_stream(local(80)).is_err());
    assert!(!metrics().keys().any(|sample| sample.contains(&name)));
    let again = tenant(&pins, &name);
    assert!(exchange(again.tcp_stream(local(80)).unwrap(), &get("/")).ends_with("tenant tenant-2\n"));
    assert!(exchange(tenants[0].1.tcp_stream(local(80)).unwrap(), &get("/")).ends_with("tenant tenant-0\n"));
}

#[test]
fn one_loop_answers_each_tenant() {
    on_a_node(Namespaces::NETWORK, || every_answer_is_of_the_right_tenant(0));
}

#[test]
fn shards_answer_each_tenant() {
    on_a_node(Namespaces::NETWORK, || every_answer_is_of_the_right_tenant(2));
}

#[test]
fn requests_are_answered_as_the_specification_says() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = start(0);
        let blue = tenant(&pins, "blue");
        let http = |request: &str| exchange(blue.tcp_stream(local(80)).unwrap(), request);
        let status = |request: &str| http(request).split("\r\n").next().unwrap_or_default().to_owned();
        let head = http("HEAD /a/large.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(head.contains("Content-Length: 1000000\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(http(&get("/a/l%61rge.txt?query")).len() > 1_000_000);
        assert_eq!(status(&get("/none")), "HTTP/1.1 404 Not Found");
        assert_eq!(status(&get("/../etc/passwd")), "HTTP/1.1 404 Not Found");
        let post = http("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
        for bad in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
            "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
            "GET none HTTP/1.1\r\nHost: x\r\n\r\n",
            "\x01\r\n\r\n",
        ] {
            assert_eq!(status(bad), "HTTP/1.1 400 Bad Request", "{bad:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9000));
        assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
        // Connections are kept, and take several requests at once: more than one turn answers.
        let many = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100) + &get("/");
        assert_eq!(http(&many).matches("tenant blue\n").count(), 101);
        let old = http("GET / HTTP/1.0\r\n\r\n");
        assert!(old.contains("Connection: close\r\n") && old.ends_with("tenant blue\n"), "{old}");
    });
}

/// A tenant that floods its services, and takes no answers, delays no other one.
#[test]
fn a_hostile_tenant_delays_no_other() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = start(0);
        let (red, blue) = (tenant(&pins, "red"), tenant(&pins, "blue"));
        let mut ours = blue.tcp_stream(local(7)).unwrap();
        ours.set_nodelay(true).unwrap();
        let floods: Vec<TcpStream> = (0..40).filter_map(|_| red.tcp_stream(local(7)).ok()).collect();
        let mut silent = red.tcp_stream(local(80)).unwrap();
        silent.write_all(b"GET / HTT").unwrap();
        let end = Instant::now() + Duration::from_millis(300);
        thread::scope(|scope| {
            for mut flood in floods {
                scope.spawn(move || {
                    flood.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
                    // Nothing is read: the server stops to read, too. Those beyond the limit are closed.
                    while Instant::now() < end && flood.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
                    thread::sleep(end.saturating_duration_since(Instant::now()));
                });
            }
            let mut slowest = Duration::ZERO;
            while Instant::now() < end {
                let begin = Instant::now();
                echo(&mut ours, "still here");
                slowest = slowest.max(begin.elapsed());
            }
            assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        });
        let value =
            |metric: &str, tenant: &str| metrics()[&format!("tenant_connections_{metric}{{tenant=\"{tenant}\"}}")];
        wait_until("connections beyond the limit are refused", LIMIT, || value("refused_total", "red") >= 30);
        assert_eq!(value("refused_total", "blue"), 0);
        assert!(value("open", "red") <= 8);
    });
}
