//! An OCI layout's images for this machine.

use std::collections::BTreeMap;

use super::received::Received;
use crate::{
    Digest, Error,
    manifest::{Descriptor, Document, Manifest, choose, parse},
    platform::Platform,
};

/// Deepest index in an index.
const DEPTH_MAX: u32 = 3;
/// Most images of one archive.
pub(super) const IMAGES_MAX: usize = 1024;
/// Most bytes of all manifests of one archive, which are kept in memory.
const MANIFESTS_MAX: u64 = 32 * 1024 * 1024;

/// An image found in an archive.
pub(super) struct Found {
    pub(super) manifest: Manifest,
    /// Digest of the manifest.
    pub(super) digest: Digest,
    /// Manifest and the indexes that led to it.
    pub(super) documents: Vec<Digest>,
    /// What the archive calls it, not yet parsed; with the digest of what bears the name.
    pub(super) names: Vec<String>,
    pub(super) target: Option<Digest>,
    /// The manifest's text, where the archive has none.
    pub(super) made: Option<Vec<u8>>,
}

pub(super) fn images(received: &Received) -> Result<Vec<Found>, Error> {
    let index = received.json(received.file("index.json")?)?;
    let Document::Index(index) = parse(&index, "")? else {
        return Err(Error::invalid("index.json is not an index"));
    };
    let mut all: Vec<Found> = Vec::new();
    let mut errors = Vec::new();
    let mut bytes = 0;
    if index.manifests.len() > IMAGES_MAX {
        return Err(Error::invalid(format!("more than {IMAGES_MAX} images in the archive")));
    }
    for entry in &index.manifests {
        bytes += received.blob(&entry.digest).map_or(0, |part| part.size);
        if bytes > MANIFESTS_MAX {
            return Err(Error::invalid(format!("manifests of more than {MANIFESTS_MAX} bytes in the archive")));
        }
        let found = follow(received, entry, DEPTH_MAX);
        match found {
            Ok(mut found) => {
                found.names = name(&entry.annotations).into_iter().collect();
                found.target = Some(entry.digest.clone());
                all.push(found);
            }
            Err(error) => errors.push(error.during(format!("manifest {}", entry.digest))),
        }
    }
    // Entries of other machines, and attestations, are no reason to refuse the rest.
    match (all.is_empty(), errors.into_iter().next()) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(Error::invalid("index.json names no image")),
        _ => Ok(all),
    }
}

fn follow(received: &Received, entry: &Descriptor, depth: u32) -> Result<Found, Error> {
    let part = received.blob(&entry.digest).ok_or_else(|| Error::not_found("it is not in the archive"))?;
    match parse(&received.json(part)?, &entry.media_type)? {
        Document::Image(manifest) => Ok(Found {
            manifest,
            digest: entry.digest.clone(),
            documents: vec![entry.digest.clone()],
            names: Vec::new(),
            target: None,
            made: None,
        }),
        Document::Index(_) if depth == 0 => Err(Error::invalid("indexes are nested too deep")),
        Document::Index(index) => {
            let mut found = follow(received, choose(&index, &Platform::host())?, depth - 1)?;
            found.documents.push(entry.digest.clone());
            Ok(found)
        }
    }
}

/// containerd's annotation is a whole reference; OCI's may be one, or a tag alone, which is no name.
fn name(annotations: &BTreeMap<String, String>) -> Option<String> {
    let whole = annotations.get("io.containerd.image.name");
    let maybe = annotations.get("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':']));
    whole.or(maybe).cloned()
}
