//! Blobs as streams that go on where they broke off.

use reqwest::{Method, Response, StatusCode};

use super::{
    client::{Ask, Session},
    manifest::summary,
};
use crate::{Digest, Error};

/// Broken connections in a row, without a byte between them, after which the endpoint is given up.
const BREAKS: u32 = 5;

/// A blob's bytes, in order, from whatever endpoint has them.
pub(crate) struct BlobStream<'a> {
    session: &'a Session,
    path: String,
    /// Endpoints still to be asked; the current one last.
    endpoints: Vec<usize>,
    response: Option<Response>,
    /// Bytes given out.
    at: u64,
    /// Bytes to leave out, where a server begins anew instead of going on.
    skip: u64,
    breaks: u32,
    errors: Vec<Error>,
}

impl Session {
    /// A blob, asked for at `first` before the other endpoints.
    pub(crate) fn blob(&self, digest: &Digest, first: usize) -> BlobStream<'_> {
        let mut endpoints: Vec<_> = (0..self.endpoints.len()).rev().filter(|index| *index != first).collect();
        endpoints.push(first);
        endpoints.retain(|index| self.endpoints[*index].pulls);
        BlobStream {
            session: self,
            path: format!("blobs/{digest}"),
            endpoints,
            response: None,
            at: 0,
            skip: 0,
            breaks: 0,
            errors: Vec::new(),
        }
    }
}

impl BlobStream<'_> {
    /// The next bytes; `None` where the server says it is done, which is right or not by size and digest.
    pub(crate) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        loop {
            let Some(response) = &mut self.response else {
                self.connect().await?;
                continue;
            };
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let skipped = self.skip.min(chunk.len() as u64);
                    self.skip -= skipped;
                    let chunk = chunk.slice(skipped as usize..);
                    if !chunk.is_empty() {
                        self.at += chunk.len() as u64;
                        self.breaks = 0;
                        return Ok(Some(chunk));
                    }
                }
                Ok(None) => return Ok(None),
                Err(cause) => {
                    let shown = self.endpoints.last().map(|index| self.session.endpoints[*index].shown());
                    self.failed(Error::unavailable(format!(
                        "download from registry {} broke off at byte {}: {}",
                        shown.unwrap_or_default(),
                        self.at,
                        super::client::chain(&cause.without_url())
                    )))?;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let Some(index) = self.endpoints.last().copied() else {
            return Err(summary(std::mem::take(&mut self.errors)));
        };
        let ask = Ask { method: Method::GET, path: &self.path, accept: "", from: self.at };
        match self.session.ask(index, &ask).await {
            Ok(response) => {
                self.skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { self.at };
                self.response = Some(response);
            }
            Err(error) => {
                self.errors.push(error);
                self.endpoints.pop();
                self.breaks = 0;
            }
        }
        Ok(())
    }

    /// A broken connection: the same endpoint once more, with a pause that grows; after too many, the next one.
    fn failed(&mut self, error: Error) -> Result<(), Error> {
        self.response = None;
        self.breaks += 1;
        if self.breaks >= BREAKS {
            self.errors.push(error);
            self.endpoints.pop();
            self.breaks = 0;
        }
        Ok(())
    }
}
