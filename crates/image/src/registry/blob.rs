//! Streams of blobs, which resume interrupted transfers.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, timeout};

use super::{
    manifest::summary,
    response::chain,
    session::{RegistryRequest, Session},
    slots::Slot,
};
use crate::{Digest, Error};

/// Interrupted transfers in a row after which the next endpoint is tried.
const BREAKS: u32 = 5;
/// Bytes after which the count of interrupted transfers starts from zero. Fewer do not count as progress: a server
/// could keep a download running forever with one byte before each interruption.
const PROGRESS: u64 = 256 * 1024;
/// The pause after the first interrupted transfer. It doubles with each one in a row.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The bytes of a blob, in order, from any endpoint that has it.
pub(crate) struct BlobStream<'a> {
    session: &'a Session,
    path: String,
    /// Endpoints that are still to be tried. The last one is the current one.
    endpoints: Vec<usize>,
    /// Index of the current endpoint, and the permit to download from it.
    slot: Option<(usize, Slot)>,
    response: Option<Response>,
    rate: Rate,
    /// Bytes returned so far.
    at: u64,
    /// Bytes to skip, if a server starts from the beginning instead of resuming.
    skip: u64,
    /// Interrupted transfers in a row.
    breaks: u32,
    /// Offset at which the last transfer was interrupted.
    broke_at: u64,
    errors: Vec<Error>,
}

/// The rate of a transfer over the time spent waiting for the network. Time in which the network waits for a slow disk
/// does not count.
struct Rate {
    window: Duration,
    /// Minimum of bytes in one window.
    least: u64,
    waited: Duration,
    bytes: u64,
}

impl Session {
    /// Returns a stream of a blob, which is requested from the endpoint `first` before the others.
    pub(crate) fn blob(&self, digest: &Digest, first: usize) -> BlobStream<'_> {
        let mut endpoints: Vec<_> = (0..self.endpoints.len()).rev().filter(|index| *index != first).collect();
        endpoints.push(first);
        endpoints.retain(|index| self.endpoints[*index].pulls);
        let transfers = self.transfers();
        BlobStream {
            session: self,
            path: format!("blobs/{digest}"),
            endpoints,
            slot: None,
            response: None,
            rate: Rate {
                window: transfers.window,
                least: (transfers.bytes_per_second as f64 * transfers.window.as_secs_f64()) as u64,
                waited: Duration::ZERO,
                bytes: 0,
            },
            at: 0,
            skip: 0,
            breaks: 0,
            broke_at: 0,
            errors: Vec::new(),
        }
    }
}

impl BlobStream<'_> {
    /// Waits for a slot, and for the first endpoint that responds.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        while self.response.is_none() {
            self.connect().await?;
        }
        Ok(())
    }

    /// Returns the next bytes; `None` at the end that the server reports. The caller must check size and digest.
    pub(crate) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        loop {
            let Some(response) = &mut self.response else {
                self.connect().await?;
                continue;
            };
            let start = Instant::now();
            let read = timeout(self.rate.remaining(), response.chunk()).await;
            let slow = self.rate.add(start.elapsed(), read.as_ref().ok().and_then(|read| read.as_ref().ok()));
            match read {
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(cause)) => {
                    let reason = format!("interrupted at byte {}: {}", self.at, chain(&cause.without_url()));
                    self.failed(&reason).await;
                }
                Ok(Ok(Some(chunk))) => {
                    let skipped = self.skip.min(chunk.len() as u64);
                    self.skip -= skipped;
                    let chunk = chunk.slice(skipped as usize..);
                    self.at += chunk.len() as u64;
                    if slow {
                        self.failed_slow().await;
                    }
                    if !chunk.is_empty() {
                        return Ok(Some(chunk));
                    }
                }
                Err(_) => self.failed_slow().await,
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let Some(index) = self.endpoints.last().copied() else {
            return Err(summary(std::mem::take(&mut self.errors)));
        };
        if self.slot.as_ref().is_none_or(|(endpoint, _)| *endpoint != index) {
            self.slot = None;
            self.slot = Some((index, self.session.slot(index).await));
        }
        let request = RegistryRequest { method: Method::GET, path: &self.path, accept: "", from: self.at };
        match self.session.send(index, &request).await {
            Ok(response) => {
                self.skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { self.at };
                self.response = Some(response);
                self.rate.begin();
            }
            Err(error) => self.give_up(error),
        }
        Ok(())
    }

    async fn failed_slow(&mut self) {
        let (least, seconds) = (self.rate.least, self.rate.window.as_secs_f64());
        self.failed(&format!("stopped at byte {}: less than {least} bytes in {seconds} s", self.at)).await;
    }

    /// Handles an interrupted transfer: the same endpoint is tried again after a pause; after too many interruptions in
    /// a row, the next one is.
    async fn failed(&mut self, reason: &str) {
        self.response = None;
        if self.at >= self.broke_at + PROGRESS {
            self.breaks = 0;
        }
        self.broke_at = self.at;
        self.breaks += 1;
        if self.breaks >= BREAKS {
            let server = self.endpoints.last().map(|index| self.session.endpoints[*index].display_name());
            return self.give_up(Error::unavailable(format!(
                "download from registry {}: {reason}",
                server.unwrap_or_default()
            )));
        }
        tokio::time::sleep(pause(self.breaks)).await;
    }

    fn give_up(&mut self, error: Error) {
        self.errors.push(error);
        self.endpoints.pop();
        self.breaks = 0;
        self.broke_at = self.at;
    }
}

/// Returns a random duration between half of and all of a pause that doubles with each interrupted transfer, so that
/// downloads that were interrupted together do not resume together.
fn pause(breaks: u32) -> Duration {
    let full = PAUSE.saturating_mul(1 << breaks.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let mut random = [0; 2];
    let random = match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
        Ok(2) => f64::from(u16::from_ne_bytes(random)) / f64::from(u16::MAX),
        _ => 0.5,
    };
    full.mul_f64(0.5 + random / 2.0)
}

impl Rate {
    fn begin(&mut self) {
        (self.waited, self.bytes) = (Duration::ZERO, 0);
    }

    /// Returns the longest time to wait for the next bytes.
    fn remaining(&self) -> Duration {
        self.window.saturating_sub(self.waited)
    }

    /// Adds a wait and the bytes it returned. Returns whether a window ended with too few bytes.
    fn add(&mut self, waited: Duration, read: Option<&Option<bytes::Bytes>>) -> bool {
        self.waited += waited;
        self.bytes += read.and_then(Option::as_ref).map_or(0, |chunk| chunk.len() as u64);
        if self.waited < self.window {
            return false;
        }
        let slow = self.bytes < self.least;
        self.begin();
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, PAUSE_MAX, pause};

    #[test]
    fn pauses_are_random_and_grow_to_a_limit() {
        assert!((1..100).map(|_| pause(1)).all(|pause| pause >= PAUSE / 2 && pause <= PAUSE));
        assert!(pause(4) >= PAUSE * 4 && pause(4) <= PAUSE * 8);
        assert!(pause(40) >= PAUSE_MAX / 2 && pause(40) <= PAUSE_MAX);
        let all: std::collections::HashSet<_> = (0..20).map(|_| pause(3)).collect();
        assert!(all.len() > 1);
    }
}
