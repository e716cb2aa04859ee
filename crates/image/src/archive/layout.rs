//! Images of an OCI layout that run on this machine.

use std::collections::BTreeMap;

use super::files::ArchiveFiles;
use crate::{
    Digest, Error,
    manifest::{Descriptor, Document, Manifest, choose, parse},
    platform::Platform,
};

/// Deepest nesting of indexes.
const DEPTH_MAX: u32 = 3;
/// Most images in one archive.
pub(super) const IMAGES_MAX: usize = 1024;
/// Most bytes of all manifests in one archive, which are kept in memory.
const MANIFESTS_MAX: u64 = 32 * 1024 * 1024;

/// An image in an archive.
pub(super) struct ArchiveImage {
    pub(super) manifest: Manifest,
    /// Digest of the manifest.
    pub(super) digest: Digest,
    /// Digests of the manifest and of the indexes that lead to it.
    pub(super) documents: Vec<Digest>,
    /// Names of the image in the archive, not parsed yet.
    pub(super) names: Vec<String>,
    /// Digest of the manifest or index that has these names.
    pub(super) target: Option<Digest>,
    /// Text of the manifest, if it was generated because the archive does not contain one.
    pub(super) generated_manifest: Option<Vec<u8>>,
}

pub(super) fn images(files: &ArchiveFiles) -> Result<Vec<ArchiveImage>, Error> {
    let index = files.json(files.file("index.json")?)?;
    let Document::Index(index) = parse(&index, "")? else {
        return Err(Error::invalid("index.json is not an index"));
    };
    let mut all: Vec<ArchiveImage> = Vec::new();
    let mut errors = Vec::new();
    let mut bytes = 0;
    if index.manifests.len() > IMAGES_MAX {
        return Err(Error::invalid(format!("more than {IMAGES_MAX} images in the archive")));
    }
    for entry in &index.manifests {
        bytes += files.blob(&entry.digest).map_or(0, |archive_file| archive_file.size);
        if bytes > MANIFESTS_MAX {
            return Err(Error::invalid(format!("manifests of more than {MANIFESTS_MAX} bytes in the archive")));
        }
        let image = follow(files, entry, DEPTH_MAX);
        match image {
            Ok(mut image) => {
                image.names = name(&entry.annotations).into_iter().collect();
                image.target = Some(entry.digest.clone());
                all.push(image);
            }
            Err(error) => errors.push(error.during(format!("manifest {}", entry.digest))),
        }
    }
    // Entries for other platforms, and attestations, must not prevent the import of the rest.
    match (all.is_empty(), errors.into_iter().next()) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(Error::invalid("index.json lists no image")),
        _ => Ok(all),
    }
}

fn follow(files: &ArchiveFiles, entry: &Descriptor, depth: u32) -> Result<ArchiveImage, Error> {
    let archive_file = files.blob(&entry.digest).ok_or_else(|| Error::not_found("it is not in the archive"))?;
    match parse(&files.json(archive_file)?, &entry.media_type)? {
        Document::Image(manifest) => Ok(ArchiveImage {
            manifest,
            digest: entry.digest.clone(),
            documents: vec![entry.digest.clone()],
            names: Vec::new(),
            target: None,
            generated_manifest: None,
        }),
        Document::Index(_) if depth == 0 => Err(Error::invalid("indexes are nested too deep")),
        Document::Index(index) => {
            let mut image = follow(files, choose(&index, &Platform::host())?, depth - 1)?;
            image.documents.push(entry.digest.clone());
            Ok(image)
        }
    }
}

/// Returns the name of an image in its annotations. containerd's annotation is a complete reference. That of OCI may be
/// one, or only a tag, which is not a name.
fn name(annotations: &BTreeMap<String, String>) -> Option<String> {
    let complete = annotations.get("io.containerd.image.name");
    let reference = annotations.get("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':']));
    complete.or(reference).cloned()
}
