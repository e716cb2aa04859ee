//! Meters: iperf3 for throughput, sockperf for latency, stress-ng for load.

use std::{
    path::Path,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use rustix::thread::CpuSet;
use serde::Deserialize;

use super::{Load, bed::Bed, node::version, running::Running};
use crate::engine::Failure;

/// Ports of the servers. Each measurement uses the next one, because a port of the previous connection is occupied for a minute
/// (TIME-WAIT).
const PORTS: std::ops::Range<u16> = 5201..25201;
/// Size of the messages whose round trips are measured, in bytes.
const MESSAGE: &str = "64";
/// A program that has not ended so many seconds after the end of its measurement has failed.
const GRACE: u64 = 20;
/// Time until all workers of stress-ng are running.
const STRESS_START: Duration = Duration::from_millis(300);
/// stress-ng ends after so many seconds, if it is not ended before.
const STRESS_SECONDS: u64 = 600;

/// A throughput of TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Throughput {
    /// What the server received, in Gbit/s.
    pub(super) gbits: f64,
    /// Segments that the client sent again.
    pub(super) retransmits: u64,
}

/// Round trips of messages of 64 bytes, each sent when the previous one has returned; in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub(super) min_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Messages that were not returned.
    pub(super) dropped: u64,
}

/// The processors that client and server are bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processors {
    pub(super) client: usize,
    pub(super) server: usize,
    /// Number of those that this process may use.
    pub(super) count: usize,
}

impl Processors {
    /// Chooses the first and the last processor that this process may use; with one, both are the same.
    pub(super) fn choose() -> Result<Self, Failure> {
        let allowed =
            rustix::thread::sched_getaffinity(None).map_err(|e| Failure(format!("choose processors: {e}")))?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        match (all.first(), all.last()) {
            (Some(first), Some(last)) => Ok(Self { client: *first, server: *last, count: all.len() }),
            _ => Err(Failure("choose processors: there are none".to_owned())),
        }
    }
}

/// A protocol whose round trips are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// Returns the versions of the meters, of stress-ng only if it is a load.
pub(super) fn versions(loads: &[Load]) -> Result<String, Failure> {
    let mut versions = Vec::new();
    for meter in ["iperf3", "sockperf"].into_iter().chain(loads.contains(&Load::Stressed).then_some("stress-ng")) {
        let version = version(Path::new(meter));
        versions.push(
            version.map_err(|Failure(cause)| Failure(format!("{cause}; install iperf3, sockperf and stress-ng")))?,
        );
    }
    Ok(versions.join(", "))
}

/// Starts one worker of stress-ng for each processor in the server's place; they run until the result is dropped.
pub(super) async fn stress(bed: &Bed, processors: Processors) -> Result<Running, Failure> {
    let workers = processors.count.to_string();
    let running = bed.server.spawn(&["stress-ng", "--quiet", "--cpu", &workers], None, STRESS_SECONDS)?;
    tokio::time::sleep(STRESS_START).await;
    running.still_running().await
}

/// Measures the throughput of one TCP stream from the client to the server.
pub(super) async fn throughput(bed: &Bed, processors: Processors, seconds: u64) -> Result<Throughput, Failure> {
    let (port_number, limit) = (next_port(), seconds + GRACE);
    let (address, port) = (bed.address.to_string(), port_number.to_string());
    let words = ["iperf3", "--server", "--one-off", "--bind", &address, "--port", &port];
    let server = bed.server.spawn(&words, Some(processors.server), limit)?;
    server.wait_for_port("tcp", port_number).await?;
    let time = seconds.to_string();
    let words = ["iperf3", "--client", &address, "--port", &port, "--time", &time, "--json"];
    let text = bed.client.spawn(&words, Some(processors.client), limit)?.output().await?;
    parse_throughput(&text)
}

/// Measures round trips.
pub(super) async fn latency(
    bed: &Bed,
    processors: Processors,
    seconds: u64,
    protocol: Protocol,
) -> Result<Latency, Failure> {
    let (port_number, limit) = (next_port(), seconds + GRACE);
    let (address, port) = (bed.address.to_string(), port_number.to_string());
    let (name, option) = match protocol {
        Protocol::Tcp => ("tcp", Some("--tcp")),
        Protocol::Udp => ("udp", None),
    };
    let to_server = ["-i", &address, "-p", &port];
    let words: Vec<&str> = ["sockperf", "server"].into_iter().chain(to_server).chain(option).collect();
    let server = bed.server.spawn(&words, Some(processors.server), limit)?;
    server.wait_for_port(name, port_number).await?;
    let time = seconds.to_string();
    let measure = ["--full-rtt", "-m", MESSAGE, "-t", &time];
    let words: Vec<&str> =
        ["sockperf", "ping-pong"].into_iter().chain(to_server).chain(measure).chain(option).collect();
    let text = bed.client.spawn(&words, Some(processors.client), limit)?.output().await?;
    parse_latency(&text)
}

fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
}

fn parse_throughput(text: &str) -> Result<Throughput, Failure> {
    #[derive(Deserialize)]
    struct Report {
        end: End,
    }
    #[derive(Deserialize)]
    struct End {
        sum_sent: Sent,
        sum_received: Received,
    }
    #[derive(Deserialize)]
    struct Sent {
        retransmits: u64,
    }
    #[derive(Deserialize)]
    struct Received {
        bits_per_second: f64,
    }
    // Its exit code does not show every error.
    let error = serde_json::from_str::<serde_json::Value>(text).ok();
    if let Some(error) = error.as_ref().and_then(|report| report["error"].as_str()) {
        return Err(Failure(format!("iperf3: {error}")));
    }
    let report: Report =
        serde_json::from_str(text).map_err(|e| Failure(format!("iperf3 printed something unexpected: {e}")))?;
    let gbits = report.end.sum_received.bits_per_second / 1e9;
    if gbits <= 0.0 {
        return Err(Failure("iperf3: nothing was received".to_owned()));
    }
    Ok(Throughput { gbits, retransmits: report.end.sum_sent.retransmits })
}

fn parse_latency(text: &str) -> Result<Latency, Failure> {
    let missing = |what: &str| Failure(format!("sockperf printed no {what}"));
    let after = |label: &str| {
        let rest = text.lines().find_map(|line| Some(line.split_once(label)?.1))?;
        rest.trim_start_matches([' ', '=']).split([' ', ';']).next()
    };
    if let Some(line) = text.lines().find(|line| line.contains("No messages were received")) {
        return Err(Failure(line.trim().to_owned()));
    }
    let time = |label: &str| after(label).and_then(|value| value.parse::<f64>().ok()).ok_or_else(|| missing(label));
    let dropped = "dropped messages";
    let latency = Latency {
        min_us: time("<MIN> observation")?,
        p50_us: time("percentile 50.000")?,
        p99_us: time("percentile 99.000")?,
        dropped: after(dropped).and_then(|value| value.parse().ok()).ok_or_else(|| missing(dropped))?,
    };
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iperf3 3.12 prints at the end of `--json`, shortened.
    const IPERF3: &str = r#"{"start": {"connected": []}, "intervals": [], "end": {"streams": [],
        "sum_sent": {"start": 0, "end": 1.006375, "seconds": 1.006375, "bytes": 377225216,
            "bits_per_second": 2998685110.4210658, "retransmits": 48, "sender": true},
        "sum_received": {"start": 0, "end": 1.006773, "seconds": 1.006773, "bytes": 376693560,
            "bits_per_second": 2993275028.2337728, "sender": true},
        "sender_tcp_congestion": "bbr", "receiver_tcp_congestion": "bbr"}}"#;

    /// What sockperf 3.7 prints, with its escape sequences.
    const SOCKPERF: &str = "sockperf: \u{1b}[2;35m== version #3.7-no.git == \u{1b}[0m
sockperf[CLIENT] send on:sockperf: using recvfrom() to block on socket(s)

[ 0] IP = 10.0.1.4        PORT =  5202 # TCP
sockperf: Warmup stage (sending a few dummy messages)...
sockperf: Starting test...
sockperf: Test end (interrupted by timer)
sockperf: Test ended
sockperf: [Total Run] RunTime=1.004 sec; Warm up time=400 msec; SentMessages=3142; ReceivedMessages=3141
sockperf: ========= Printing statistics for Server No: 0
sockperf: [Valid Duration] RunTime=0.552 sec; SentMessages=1597; ReceivedMessages=1597
sockperf: \u{1b}[2;35m====> avg-rtt=345.411 (std-dev=1136.076)\u{1b}[0m
sockperf: # dropped messages = 3; # duplicated messages = 0; # out-of-order messages = 0
sockperf: Summary: Round trip is 345.411 usec
sockperf: \u{1b}[2;35mTotal 1597 observations\u{1b}[0m; each percentile contains 15.97 observations
sockperf: ---> <MAX> observation = 10771.962
sockperf: ---> percentile 99.999 = 10771.962
sockperf: ---> percentile 99.990 = 10771.962
sockperf: ---> percentile 99.900 = 9309.700
sockperf: ---> percentile 99.000 = 7173.113
sockperf: ---> percentile 90.000 =  148.758
sockperf: ---> percentile 75.000 =  107.281
sockperf: ---> percentile 50.000 =   93.305
sockperf: ---> percentile 25.000 =   87.784
sockperf: ---> <MIN> observation =   74.058
";

    #[test]
    fn throughput_is_what_the_server_received() {
        let expected = Throughput { gbits: 2.993_275_028_233_773, retransmits: 48 };
        assert_eq!(parse_throughput(IPERF3).unwrap(), expected);
    }

    #[test]
    fn latency_is_the_whole_round_trip() {
        let expected = Latency { min_us: 74.058, p50_us: 93.305, p99_us: 7173.113, dropped: 3 };
        assert_eq!(parse_latency(SOCKPERF).unwrap(), expected);
    }

    #[test]
    fn output_without_a_result_is_a_failure() {
        let error = parse_throughput(r#"{"end": {}, "error": "unable to connect to server"}"#).unwrap_err();
        assert_eq!(error.0, "iperf3: unable to connect to server");
        assert!(parse_throughput(&IPERF3.replace("2993275028.2337728", "0")).is_err());
        let cut = SOCKPERF.split("---> percentile 99.000").next().unwrap();
        assert_eq!(parse_latency(cut).unwrap_err().0, "sockperf printed no <MIN> observation");
    }
}
