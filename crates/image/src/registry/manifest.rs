//! Requests of manifests, whose size is limited and whose digest is verified.

use reqwest::{Method, header::CONTENT_TYPE};

use super::{
    response::read_bounded,
    session::{RegistryRequest, Session},
};
use crate::{Digest, Error, ErrorKind, manifest::ACCEPT};

/// Largest manifest or index (distribution specification: registries should limit them to 4 MiB).
pub(crate) const MANIFEST_MAX: usize = 4 * 1024 * 1024;

/// A manifest or an index, verified if it was requested by digest.
pub(crate) struct FetchedManifest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) media_type: String,
    /// Index of the endpoint that had it, which is the first to be tried for the blobs.
    pub(crate) endpoint: usize,
}

impl Session {
    /// Fetches a manifest by tag or digest from the first endpoint that has it.
    pub(crate) async fn manifest(&self, target: &str) -> Result<FetchedManifest, Error> {
        let path = format!("manifests/{target}");
        let requested: Option<Digest> = target.parse().ok();
        let mut errors = Vec::new();
        let is_allowed = |index: &usize| match requested {
            Some(_) => self.endpoints[*index].pulls,
            None => self.endpoints[*index].resolves,
        };
        for index in (0..self.endpoints.len()).filter(is_allowed) {
            match self.manifest_at(index, &path, requested.as_ref()).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            return Err(Error::invalid(format!(
                "no host of the registry may serve manifest {target}; check `capabilities` in its hosts.toml"
            )));
        }
        Err(summary(errors))
    }

    async fn manifest_at(
        &self,
        index: usize,
        path: &str,
        requested: Option<&Digest>,
    ) -> Result<FetchedManifest, Error> {
        let response =
            self.send(index, &RegistryRequest { method: Method::GET, path, accept: ACCEPT, from: 0 }).await?;
        let server = self.endpoints[index].display_name();
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let media_type = text(CONTENT_TYPE.as_str()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_owned();
        let reported: Option<Digest> = text("docker-content-digest").and_then(|digest| digest.parse().ok());
        let bytes = read_bounded(response, MANIFEST_MAX)
            .await
            .map_err(|error| error.during(format!("manifest from {server}")))?;
        let digest = Digest::of(&bytes);
        match requested.or(reported.as_ref()).filter(|expected| **expected != digest) {
            Some(expected) => {
                Err(Error::corrupt(format!("manifest from registry {server} has digest {digest}, expected {expected}")))
            }
            None => Ok(FetchedManifest { bytes, digest, media_type, endpoint: index }),
        }
    }

    /// Checks that an endpoint allows the caller to pull this manifest. Transfers no manifest, unless an endpoint does
    /// not support HEAD.
    ///
    /// # Errors
    /// Every endpoint refuses, has no such manifest, or cannot be reached.
    pub(crate) async fn authorize_pull(&self, digest: &Digest) -> Result<(), Error> {
        let path = format!("manifests/{digest}");
        let mut errors = Vec::new();
        for index in (0..self.endpoints.len()).filter(|index| self.endpoints[*index].pulls) {
            let request = RegistryRequest { method: Method::HEAD, path: &path, accept: ACCEPT, from: 0 };
            let result = match self.send(index, &request).await {
                Err(error) if error.kind == ErrorKind::Invalid => {
                    self.manifest_at(index, &path, Some(digest)).await.map(drop)
                }
                other => other.map(drop),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error) => errors.push(error),
            }
        }
        Err(summary(errors))
    }

    /// Requests the current digest of a tag; `None` if the first endpoint that responds does not return it. Registries
    /// that count pulls do not count this request.
    pub(crate) async fn digest(&self, tag: &str) -> Option<Digest> {
        let path = format!("manifests/{tag}");
        for index in (0..self.endpoints.len()).filter(|index| self.endpoints[*index].resolves) {
            let request = RegistryRequest { method: Method::HEAD, path: &path, accept: ACCEPT, from: 0 };
            if let Ok(response) = self.send(index, &request).await {
                return response.headers().get("docker-content-digest")?.to_str().ok()?.parse().ok();
            }
        }
        None
    }
}

/// Combines the errors of all endpoints: the kind is that of the last one, the registry itself; the message has all
/// messages.
pub(crate) fn summary(mut errors: Vec<Error>) -> Error {
    let kind = errors.last().map_or(ErrorKind::System, |error| error.kind);
    let remedy = match kind {
        ErrorKind::NotFound => "; check name and tag",
        ErrorKind::Unauthorized => "; check name and credentials",
        ErrorKind::Unavailable => "; check the registry's address and that it is running",
        _ => "",
    };
    errors.dedup_by(|a, b| a.message == b.message);
    let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
    Error::new(kind, format!("{}{remedy}", messages.join("; then ")))
}
