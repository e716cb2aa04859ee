//! `pinion-bench netns-client`: sends requests on all connections, one at a time on each, and measures.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use netns::{EventLoop, Interest, ThreadGuard};
use serde::{Deserialize, Serialize};

use super::{
    plan::{PORT, REQUEST, name, pins, use_processors},
    vrf,
};
use crate::engine::Failure;

/// Arguments of `pinion-bench netns-client`.
#[derive(clap::Args)]
pub(crate) struct ClientArguments {
    /// Number of namespaces to connect from.
    #[arg(long)]
    count: usize,
    /// Number of connections in each.
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    seconds: f64,
    /// The tenants are VRFs of one namespace.
    #[arg(long)]
    vrf: bool,
}

/// What the client measured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Number of answers.
    pub(super) requests: u64,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// Median of the time from a request to its answer, in microseconds.
    pub(super) p50_us: f64,
    /// Its 99th percentile.
    pub(super) p99_us: f64,
    /// Connections that broke, and answers that were wrong.
    pub(super) errors: u64,
}

struct Connection {
    stream: TcpStream,
    sent: Instant,
    number: u64,
}

impl std::os::fd::AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Connects, prints `connected`, warms up, prints `begin`, measures, and prints the result as JSON.
pub(crate) fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    use_processors(false)?;
    let mut events = connect(arguments)?;
    println!("connected");
    let mut samples = Vec::with_capacity(4_000_000);
    let mut errors = exchange(&mut events, arguments.seconds / 4.0, &mut samples)?;
    println!("begin");
    samples.clear();
    let begin = Instant::now();
    errors += exchange(&mut events, arguments.seconds, &mut samples)?;
    let seconds = begin.elapsed().as_secs_f64();
    samples.sort_unstable();
    let rank = |q: f64| {
        let position = ((samples.len() as f64 * q).ceil() as usize).saturating_sub(1);
        samples.get(position).map_or(0.0, |nanoseconds| f64::from(*nanoseconds) / 1000.0)
    };
    let measured = Measured { requests: samples.len() as u64, seconds, p50_us: rank(0.5), p99_us: rank(0.99), errors };
    let text = serde_json::to_string(&measured).map_err(|e| Failure(format!("encode the result: {e}")))?;
    println!("{text}");
    Ok(())
}

fn connect(arguments: &ClientArguments) -> Result<EventLoop<Connection>, Failure> {
    let fail = |e: std::io::Error| Failure(format!("connect: {e}"));
    let (pins, guard, mut events) = (pins()?, ThreadGuard::new()?, EventLoop::new()?);
    for number in 0..arguments.count {
        let pin = if arguments.vrf { vrf::NAMESPACE.to_owned() } else { name(number) };
        let namespace = pins.pins().get(&pin)?;
        guard.switch(&namespace)?;
        for _ in 0..arguments.connections {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
            let connected = if arguments.vrf { vrf::stream(number) } else { TcpStream::connect(address) };
            let stream = connected.map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            let mut connection = Connection { stream, sent: Instant::now(), number: 0 };
            connection.send(Instant::now()).map_err(fail)?;
            events.add(namespace.id()?, connection, Interest::Read)?;
        }
    }
    Ok(events)
}

impl Connection {
    fn request(&self) -> [u8; REQUEST] {
        let mut request = [0; REQUEST];
        request[..8].copy_from_slice(&self.number.to_ne_bytes());
        request
    }

    fn send(&mut self, now: Instant) -> std::io::Result<()> {
        self.number += 1;
        self.sent = now;
        self.stream.write_all(&self.request())
    }

    /// Reads an answer; returns whether it is the one to the last request.
    fn receive(&mut self) -> bool {
        let mut answer = [0; REQUEST];
        self.stream.read_exact(&mut answer).is_ok() && answer == self.request()
    }
}

/// Answers are awaited and requests sent until the time is over. Returns the number of errors.
fn exchange(events: &mut EventLoop<Connection>, seconds: f64, samples: &mut Vec<u32>) -> Result<u64, Failure> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut ready, mut errors) = (Vec::new(), 0);
    while Instant::now() < end {
        events.wait(&mut ready, Some(Duration::from_millis(100)))?;
        for ready in &ready {
            let Some((_, connection)) = events.get_mut(ready.key) else { continue };
            let is_answered = connection.receive();
            // The clock is read once for an answer and the next request: the client takes as much time as the server.
            let now = Instant::now();
            let nanoseconds = now.duration_since(connection.sent).as_nanos();
            if is_answered && connection.send(now).is_ok() {
                samples.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
            } else {
                errors += 1;
                events.remove(ready.key);
            }
        }
    }
    Ok(errors)
}
