//! Blobs as streams that continue where they broke off.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, timeout};

use super::{
    client::{Ask, Session, chain},
    manifest::summary,
};
use crate::{Digest, Error, pull::Slot};

/// Broken transfers in a row after which the endpoint is given up.
const BREAKS: u32 = 5;
/// Bytes after which a broken transfer is the first of a row again. Fewer prove nothing: a server could hold a download
/// forever with one byte before each break.
const PROGRESS: u64 = 256 * 1024;
/// The pause after the first broken transfer; it doubles with each one in a row.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A blob's bytes, in order, from whatever endpoint has them.
pub(crate) struct BlobStream<'a> {
    session: &'a Session,
    path: String,
    /// Endpoints still to be asked; the current one last.
    endpoints: Vec<usize>,
    /// Leave to download from the current one.
    slot: Option<(usize, Slot)>,
    response: Option<Response>,
    rate: Rate,
    /// Bytes given out.
    at: u64,
    /// Bytes to leave out, where a server begins from scratch instead of continuing.
    skip: u64,
    /// Broken transfers in a row, and how far the one before them came.
    breaks: u32,
    broke_at: u64,
    errors: Vec<Error>,
}

/// How much came in how much time of waiting. Time in which nobody waits for the network, because the disk is slow,
/// does not count.
struct Rate {
    window: Duration,
    /// Least bytes in one window.
    least: u64,
    waited: Duration,
    bytes: u64,
}

impl Session {
    /// A blob, requested at `first` before the other endpoints.
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
    /// Waits for a slot and for the first endpoint that answers.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        while self.response.is_none() {
            self.connect().await?;
        }
        Ok(())
    }

    /// The next bytes; `None` where the server says it is done, which is right or not by size and digest.
    pub(crate) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        loop {
            let Some(response) = &mut self.response else {
                self.connect().await?;
                continue;
            };
            let began = Instant::now();
            let read = timeout(self.rate.left(), response.chunk()).await;
            let slow = self.rate.add(began.elapsed(), read.as_ref().ok().and_then(|read| read.as_ref().ok()));
            match read {
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(cause)) => {
                    let why = format!("broke off at byte {}: {}", self.at, chain(&cause.without_url()));
                    self.failed(&why).await;
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
        if self.slot.as_ref().is_none_or(|(of, _)| *of != index) {
            self.slot = None;
            self.slot = Some((index, self.session.slot(index).await));
        }
        let ask = Ask { method: Method::GET, path: &self.path, accept: "", from: self.at };
        match self.session.ask(index, &ask).await {
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
        self.failed(&format!("stopped at byte {}: it brought less than {least} bytes in {seconds} s", self.at)).await;
    }

    /// A broken transfer: the same endpoint once more after a pause; after too many in a row, the next one.
    async fn failed(&mut self, why: &str) {
        self.response = None;
        if self.at >= self.broke_at + PROGRESS {
            self.breaks = 0;
        }
        self.broke_at = self.at;
        self.breaks += 1;
        if self.breaks >= BREAKS {
            let shown = self.endpoints.last().map(|index| self.session.endpoints[*index].shown());
            return self
                .give_up(Error::unavailable(format!("download from registry {} {why}", shown.unwrap_or_default())));
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

/// Between a half and the whole of what doubles with each broken transfer, so that downloads that broke together do not
/// come back together.
fn pause(breaks: u32) -> Duration {
    let whole = PAUSE.saturating_mul(1 << breaks.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let mut random = [0; 2];
    let random = match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
        Ok(2) => f64::from(u16::from_ne_bytes(random)) / f64::from(u16::MAX),
        _ => 0.5,
    };
    whole.mul_f64(0.5 + random / 2.0)
}

impl Rate {
    fn begin(&mut self) {
        (self.waited, self.bytes) = (Duration::ZERO, 0);
    }

    /// How long to wait at most.
    fn left(&self) -> Duration {
        self.window.saturating_sub(self.waited)
    }

    /// Counts a wait and what it brought; returns whether a window ended with too little.
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
    fn pauses_grow_to_a_bound_and_differ() {
        assert!((1..100).map(|_| pause(1)).all(|pause| pause >= PAUSE / 2 && pause <= PAUSE));
        assert!(pause(4) >= PAUSE * 4 && pause(4) <= PAUSE * 8);
        assert!(pause(40) >= PAUSE_MAX / 2 && pause(40) <= PAUSE_MAX);
        let all: std::collections::HashSet<_> = (0..20).map(|_| pause(3)).collect();
        assert!(all.len() > 1);
    }
}
