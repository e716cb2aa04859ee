//! Manifests: fetched, bounded, and compared with their digest.

use reqwest::{Method, header::CONTENT_TYPE};

use super::client::{Ask, Session, bounded};
use crate::{Digest, Error, ErrorKind, manifest::ACCEPT};

/// Largest manifest or index (distribution specification: registries should limit them to 4 MiB).
pub(crate) const MANIFEST_MAX: usize = 4 * 1024 * 1024;

/// A manifest or an index, verified where a digest was asked for.
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) media_type: String,
    /// Which endpoint had it: the first to be asked for the blobs.
    pub(crate) endpoint: usize,
}

impl Session {
    /// Fetches a manifest by tag or digest from the first endpoint that has it.
    pub(crate) async fn manifest(&self, target: &str) -> Result<Fetched, Error> {
        let path = format!("manifests/{target}");
        let wanted: Option<Digest> = target.parse().ok();
        let mut errors = Vec::new();
        let may = |index: &usize| match wanted {
            Some(_) => self.endpoints[*index].pulls,
            None => self.endpoints[*index].resolves,
        };
        for index in (0..self.endpoints.len()).filter(may) {
            match self.manifest_at(index, &path, wanted.as_ref()).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            return Err(Error::invalid(format!(
                "no host of the registry may be asked for manifest {target}: see `capabilities` in its hosts.toml"
            )));
        }
        Err(summary(errors))
    }

    async fn manifest_at(&self, index: usize, path: &str, wanted: Option<&Digest>) -> Result<Fetched, Error> {
        let response = self.ask(index, &Ask { method: Method::GET, path, accept: ACCEPT, from: 0 }).await?;
        let shown = self.endpoints[index].shown();
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let media_type = text(CONTENT_TYPE.as_str()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_owned();
        let said: Option<Digest> = text("docker-content-digest").and_then(|digest| digest.parse().ok());
        let bytes =
            bounded(response, MANIFEST_MAX).await.map_err(|error| error.during(format!("manifest from {shown}")))?;
        let digest = Digest::of(&bytes);
        match wanted.or(said.as_ref()).filter(|expected| **expected != digest) {
            Some(expected) => Err(Error::corrupt(format!(
                "manifest from registry {shown} has digest {digest}, {expected} is expected"
            ))),
            None => Ok(Fetched { bytes, digest, media_type, endpoint: index }),
        }
    }

    /// Whether the caller may still pull this manifest, as the first endpoint that lets it says. Transfers no manifest,
    /// unless an endpoint does not answer HEAD.
    ///
    /// # Errors
    /// Every endpoint refuses, has no such manifest, or cannot be reached.
    pub(crate) async fn authorize_pull(&self, digest: &Digest) -> Result<(), Error> {
        let path = format!("manifests/{digest}");
        let mut errors = Vec::new();
        for index in (0..self.endpoints.len()).filter(|index| self.endpoints[*index].pulls) {
            let ask = Ask { method: Method::HEAD, path: &path, accept: ACCEPT, from: 0 };
            let answered = match self.ask(index, &ask).await {
                Err(error) if error.kind == ErrorKind::Invalid => {
                    self.manifest_at(index, &path, Some(digest)).await.map(drop)
                }
                other => other.map(drop),
            };
            match answered {
                Ok(()) => return Ok(()),
                Err(error) => errors.push(error),
            }
        }
        Err(summary(errors))
    }

    /// The digest that a tag has now, if the first endpoint that answers tells it; costs no pull on registries that
    /// count.
    pub(crate) async fn digest(&self, tag: &str) -> Option<Digest> {
        let path = format!("manifests/{tag}");
        for index in (0..self.endpoints.len()).filter(|index| self.endpoints[*index].resolves) {
            let ask = Ask { method: Method::HEAD, path: &path, accept: ACCEPT, from: 0 };
            if let Ok(response) = self.ask(index, &ask).await {
                return response.headers().get("docker-content-digest")?.to_str().ok()?.parse().ok();
            }
        }
        None
    }
}

/// What no endpoint could answer: the kind of the registry's own answer, and everyone's words.
pub(crate) fn summary(mut errors: Vec<Error>) -> Error {
    let kind = errors.last().map_or(ErrorKind::System, |error| error.kind);
    let way_out = match kind {
        ErrorKind::NotFound => "; check name and tag",
        ErrorKind::Unauthorized => "; check name and credentials",
        ErrorKind::Unavailable => "; check the registry's address and that it runs",
        _ => "",
    };
    errors.dedup_by(|a, b| a.message == b.message);
    let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
    Error::new(kind, format!("{}{way_out}", messages.join("; then ")))
}
