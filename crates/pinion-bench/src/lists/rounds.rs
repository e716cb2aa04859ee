use std::time::{Duration, Instant};

use serde::Serialize;

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

/// Every list, `requests` times each.
pub(super) async fn run(engine: &Engine, requests: usize, pause: Duration) -> Result<Vec<Figures>, Failure> {
    let mut all = Vec::new();
    for list in List::ALL {
        all.push(one(engine, list, requests, pause).await?);
    }
    Ok(all)
}

async fn one(engine: &Engine, list: List, requests: usize, pause: Duration) -> Result<Figures, Failure> {
    let mut figures = Figures { list: list.name(), times: Summary::default(), bytes: 0, cpu_ms: 0.0, refused: None };
    for _ in 0..WARMUP {
        if let Err(status) = list.ask(&engine.channel).await {
            figures.refused = Some(format!("{:?}: {}", status.code(), status.message()));
            return Ok(figures);
        }
        tokio::time::sleep(pause).await;
    }
    let before = cpu_time(engine.daemon)?;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let begun = Instant::now();
        let answer = list.ask(&engine.channel).await;
        times.push(begun.elapsed());
        figures.bytes = answer.map_err(|e| Failure(format!("{}: {}: {}", engine.name, list.name(), e.message())))?;
        tokio::time::sleep(pause).await;
    }
    figures.cpu_ms = (cpu_time(engine.daemon)? - before).as_secs_f64() * 1000.0 / requests as f64;
    figures.times = Summary::of(&times);
    Ok(figures)
}
