//! Export: images of the store into one tar that is both an OCI layout and a docker archive.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Write},
};

use serde_json::json;

use super::channel;
use crate::{
    Digest, Error, ErrorKind, Image, Store, digest::Hasher, error::failed_to, index::ImageRecord,
    manifest::OCI_MANIFEST, state::Lease, store::Inner,
};

impl Store {
    /// Writes images, each given by any of its names, with all of their tags. `docker load`, `ctr images import` and
    /// [`Store::import`] read the archive.
    ///
    /// # Errors
    /// An image is not in the store, a blob is damaged (then the archive must not be used), or writing to `out` fails.
    pub async fn export(
        &self,
        names: &[String],
        out: &mut (dyn tokio::io::AsyncWrite + Send + Unpin),
    ) -> Result<(), Error> {
        let mut images: Vec<(Image, ImageRecord)> = Vec::new();
        for name in names {
            let missing = || Error::not_found(format!("export image {name}: no such image"));
            let id = self.inner.resolve(name)?.ok_or_else(missing)?;
            let state = self.inner.state.lock();
            let (Some(image), Some(known)) = (state.image(&id), state.images.get(&id)) else { return Err(missing()) };
            if !images.iter().any(|(other, _)| other.id == image.id) {
                images.push((image, (*known.record).clone()));
            }
        }
        let (store, lease) = (self.inner.clone(), self.lease(&images));
        let _permit = self.inner.transfers.archives.acquire().await;
        let result = channel::drain(&self.inner.disk, out, move |writer| {
            let written = write(&store, &images, writer);
            drop(lease);
            written
        });
        result.await.map_err(|error| error.during("export"))
    }

    fn lease(&self, images: &[(Image, ImageRecord)]) -> Lease {
        self.inner.state.lease(images.iter().flat_map(|(_, record)| record.blobs.iter().cloned()))
    }
}

fn write(store: &Inner, images: &[(Image, ImageRecord)], writer: channel::Writer) -> Result<(), Error> {
    let mut tar = tar::Builder::new(writer);
    let failed = |cause: io::Error| match cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => error.clone(),
        None => Error::system(format!("write the archive: {cause}")),
    };
    let mut done = BTreeSet::new();
    let (mut index, mut docker) = (Vec::new(), Vec::new());
    for (image, record) in images {
        let layers = record.layers.iter().map(|layer| &layer.blob);
        for blob in layers.clone().chain([&record.id, &record.manifest]) {
            if done.insert(blob.clone()) {
                append(store, &mut tar, blob).map_err(failed)?;
            }
        }
        let size = store.content.size(&record.manifest).unwrap_or(0);
        let entry = |name: Option<&String>| {
            let mut entry = json!({"mediaType": OCI_MANIFEST, "digest": record.manifest, "size": size});
            if let Some(name) = name {
                let tag = name.rsplit(':').next().unwrap_or_default();
                entry["annotations"] =
                    json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag});
            }
            entry
        };
        match image.repo_tags.is_empty() {
            true => index.push(entry(None)),
            false => index.extend(image.repo_tags.iter().map(|name| entry(Some(name)))),
        }
        docker.push(json!({
            "Config": file_name(&record.id),
            "RepoTags": image.repo_tags,
            "Layers": layers.map(file_name).collect::<Vec<_>>(),
        }));
    }
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": index});
    let small = [
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
        ("index.json", index),
        ("manifest.json", serde_json::Value::Array(docker)),
    ];
    for (name, value) in small {
        let text = value.to_string();
        tar.append_data(&mut header(text.len() as u64), name, text.as_bytes()).map_err(failed)?;
    }
    tar.into_inner().and_then(|mut writer| writer.flush()).map_err(failed)
}

fn file_name(blob: &Digest) -> String {
    format!("blobs/sha256/{}", blob.hex())
}

/// Returns a header without times and owners, so that exports of the same images are identical.
fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

fn append(store: &Inner, tar: &mut tar::Builder<channel::Writer>, blob: &Digest) -> io::Result<()> {
    let path = store.content.path(blob);
    let file = File::open(&path).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other(Error::not_found(format!("blob {blob} is missing from the store; pull the image again")))
        }
        _ => io::Error::other(failed_to("open", &path)(cause)),
    })?;
    let size = file.metadata()?.len();
    let mut reader = DigestingReader { file, hasher: Hasher::new() };
    tar.append_data(&mut header(size), file_name(blob), &mut reader)?;
    match &reader.hasher.finish() == blob {
        true => Ok(()),
        false => Err(io::Error::other(Error::new(
            ErrorKind::Corrupt,
            format!("blob {blob} is damaged on disk; remove the image and pull it again"),
        ))),
    }
}

/// A reader that computes the digest of what is read through it.
struct DigestingReader {
    file: File,
    hasher: Hasher,
}

impl Read for DigestingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}
