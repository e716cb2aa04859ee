use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;
use tonic::transport::Channel;

use super::call::List;
use crate::{
    engine::{Engine, Failure},
    process::cpu_time,
    statistics::Summary,
};

/// Requests before the measurement, because the first ones to an engine that samples return nothing.
const WARMUP: usize = 5;

/// The measurements of one list request of one engine.
#[derive(Debug, Serialize)]
pub(super) struct Measurements {
    /// Name of the RPC.
    pub(super) list: &'static str,
    /// Times from the request to the last byte of the response.
    pub(super) times: Summary,
    /// Length of the last response in bytes.
    pub(super) bytes: usize,
    /// CPU time of the daemon for each request in milliseconds.
    pub(super) cpu_ms: f64,
    /// Error of the engine, if it does not support the request.
    pub(super) refused: Option<String>,
}

/// The number of requests.
pub(super) struct Load {
    /// Requests of each client for each list.
    pub(super) requests: usize,
    pub(super) clients: usize,
    /// Time between two requests of a client.
    pub(super) pause: Duration,
}

/// Measures every list request.
pub(super) async fn run(engine: &Engine, load: &Load) -> Result<Vec<Measurements>, Failure> {
    let mut channels = vec![engine.channel.clone()];
    while channels.len() < load.clients {
        channels.push(engine.new_channel().await?);
    }
    let mut all = Vec::new();
    for list in List::ALL {
        all.push(measure(engine, list, &channels, load).await?);
    }
    Ok(all)
}

async fn measure(engine: &Engine, list: List, channels: &[Channel], load: &Load) -> Result<Measurements, Failure> {
    let mut measurements =
        Measurements { list: list.name(), times: Summary::default(), bytes: 0, cpu_ms: 0.0, refused: None };
    for _ in 0..WARMUP {
        if let Err(status) = list.request(&engine.channel).await {
            measurements.refused = Some(format!("{:?}: {}", status.code(), status.message()));
            return Ok(measurements);
        }
        tokio::time::sleep(load.pause).await;
    }
    let before = cpu_time(engine.daemon)?;
    let clients = channels.iter().map(|channel| run_client(engine, list, channel, load));
    let mut times = Vec::with_capacity(load.requests * channels.len());
    for (client_times, bytes) in try_join_all(clients).await? {
        times.extend(client_times);
        measurements.bytes = bytes;
    }
    measurements.cpu_ms = (cpu_time(engine.daemon)? - before).as_secs_f64() * 1000.0 / times.len() as f64;
    measurements.times = Summary::of(&times);
    Ok(measurements)
}

/// Sends the requests of one client. Returns the duration of each, and the length of the last response.
async fn run_client(
    engine: &Engine,
    list: List,
    channel: &Channel,
    load: &Load,
) -> Result<(Vec<Duration>, usize), Failure> {
    let (mut times, mut bytes) = (Vec::with_capacity(load.requests), 0);
    for _ in 0..load.requests {
        let start = Instant::now();
        let result = list.request(channel).await;
        times.push(start.elapsed());
        bytes = result.map_err(|e| Failure(format!("{}: {}: {}", engine.name, list.name(), e.message())))?;
        tokio::time::sleep(load.pause).await;
    }
    Ok((times, bytes))
}
