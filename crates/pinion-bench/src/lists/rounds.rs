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

/// Requests before anything counts: the first ones of an engine that samples find nothing.
const WARMUP: usize = 5;

/// One list of one engine.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// The RPC.
    pub(super) list: &'static str,
    /// From the request to the last byte.
    pub(super) times: Summary,
    /// Length of the last answer.
    pub(super) bytes: usize,
    /// CPU time of the daemon for each request, milliseconds.
    pub(super) cpu_ms: f64,
    /// What the engine said instead of an answer.
    pub(super) refused: Option<String>,
}

/// How much is asked.
pub(super) struct Load {
    /// By each client, for each list.
    pub(super) requests: usize,
    pub(super) clients: usize,
    /// Between two requests of a client.
    pub(super) pause: Duration,
}

/// Every list, as often as the load says.
pub(super) async fn run(engine: &Engine, load: &Load) -> Result<Vec<Figures>, Failure> {
    let mut channels = vec![engine.channel.clone()];
    while channels.len() < load.clients {
        channels.push(engine.another_channel().await?);
    }
    let mut all = Vec::new();
    for list in List::ALL {
        all.push(one(engine, list, &channels, load).await?);
    }
    Ok(all)
}

async fn one(engine: &Engine, list: List, channels: &[Channel], load: &Load) -> Result<Figures, Failure> {
    let mut figures = Figures { list: list.name(), times: Summary::default(), bytes: 0, cpu_ms: 0.0, refused: None };
    for _ in 0..WARMUP {
        if let Err(status) = list.ask(&engine.channel).await {
            figures.refused = Some(format!("{:?}: {}", status.code(), status.message()));
            return Ok(figures);
        }
        tokio::time::sleep(load.pause).await;
    }
    let before = cpu_time(engine.daemon)?;
    let asked = channels.iter().map(|channel| ask(engine, list, channel, load));
    let mut times = Vec::with_capacity(load.requests * channels.len());
    for (some, bytes) in try_join_all(asked).await? {
        times.extend(some);
        figures.bytes = bytes;
    }
    figures.cpu_ms = (cpu_time(engine.daemon)? - before).as_secs_f64() * 1000.0 / times.len() as f64;
    figures.times = Summary::of(&times);
    Ok(figures)
}

/// What one client sees: how long each answer took, and the length of the last one.
async fn ask(engine: &Engine, list: List, channel: &Channel, load: &Load) -> Result<(Vec<Duration>, usize), Failure> {
    let (mut times, mut bytes) = (Vec::with_capacity(load.requests), 0);
    for _ in 0..load.requests {
        let begun = Instant::now();
        let answer = list.ask(channel).await;
        times.push(begun.elapsed());
        bytes = answer.map_err(|e| Failure(format!("{}: {}: {}", engine.name, list.name(), e.message())))?;
        tokio::time::sleep(load.pause).await;
    }
    Ok((times, bytes))
}
