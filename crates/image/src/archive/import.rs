//! Import: an archive's images into the store.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{channel, docker, layout, layout::Found, received::Received};
use crate::{
    Digest, Error, Image, Store,
    flight::Cancel,
    image::{Parsed, parse_config},
    index::{ImageRecord, LayerRef},
    manifest,
    progress::Listeners,
    pull::{Source, check_platform},
    state::Lease,
    store::Inner,
};

/// An image that an archive brought.
#[derive(Clone, Debug)]
pub struct Imported {
    /// As the store has it now.
    pub image: Image,
    /// Tags that it has in the archive. The store may know it by others, too.
    pub tags: Vec<String>,
}

impl Store {
    /// Takes in every image of a docker archive or an OCI layout in a tar, plain, gzip or zstd. An image without a name
    /// gets none: it is known by its id.
    ///
    /// # Errors
    /// The archive is neither, or damaged, or has nothing for this machine. Nothing is left of it then.
    pub async fn import(
        &self,
        archive: &mut (dyn tokio::io::AsyncRead + Send + Unpin),
    ) -> Result<Vec<Imported>, Error> {
        let _turn = self.inner.pulls.archives.acquire().await;
        let store = self.inner.clone();
        let received = channel::feed(&self.inner.disk, archive, move |reader| Received::from_tar(&store, reader)).await;
        let images = match received {
            Ok(received) => self.inner.clone().take_in(received).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during("import archive"))
    }

    /// As [`Store::import`], from an OCI layout that is a directory.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub async fn import_directory(&self, directory: &Path) -> Result<Vec<Imported>, Error> {
        let (store, dir) = (self.inner.clone(), directory.to_owned());
        let received = self.inner.disk.run_long(move || Received::from_directory(&store, &dir)).await;
        let images = match received {
            Ok(received) => self.inner.clone().take_in(received).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during(format!("import OCI layout {}", directory.display())))
    }
}

impl Inner {
    async fn take_in(self: Arc<Self>, received: Received) -> Result<Vec<Imported>, Error> {
        let images = self.take_all(&Arc::new(received)).await;
        if images.is_err() {
            let store = self.clone();
            self.disk.run_long(move || store.collect()).await?;
        }
        images
    }

    async fn take_all(self: &Arc<Self>, received: &Arc<Received>) -> Result<Vec<Imported>, Error> {
        let archive = received.clone();
        let found = self.disk.run_long(move || find_images(&archive)).await?;
        let mut images: Vec<Imported> = Vec::with_capacity(found.len());
        for found in found {
            let digest = found.digest.clone();
            let Imported { image, tags } =
                self.take_one(received, found).await.map_err(|error| error.during(format!("image {digest}")))?;
            // One image may be there several times, under different names.
            match images.iter_mut().find(|earlier| earlier.image.id == image.id) {
                Some(earlier) => {
                    earlier.image = image;
                    earlier.tags.extend(tags);
                }
                None => images.push(Imported { image, tags }),
            }
        }
        Ok(images)
    }

    async fn take_one(self: &Arc<Self>, received: &Arc<Received>, found: Found) -> Result<Imported, Error> {
        let (store, archive) = (self.clone(), received.clone());
        let taken = self.disk.run_long(move || store.take_blobs(&archive, found)).await?;
        let Taken { record, parsed, names, tags, lease } = taken;
        let no_one = (&Listeners::default(), &Cancel::never());
        let ready = self.bring_layers(&record.layers, &Source::Store, no_one.0, no_one.1).await?;
        let store = self.clone();
        let list = move || {
            let image = store.list_image(record, parsed, names, ready);
            drop(lease);
            image
        };
        Ok(Imported { image: self.disk.run_long(list).await?, tags })
    }

    /// Moves an image's blobs to the content store. Blocks.
    fn take_blobs(&self, received: &Received, found: Found) -> Result<Taken, Error> {
        let missing = |digest: &Digest| Error::invalid(format!("blob {digest} is not in the archive"));
        let config = &found.manifest.config.digest;
        let part = received.blob(config).ok_or_else(|| missing(config))?;
        let parsed = parse_config(&received.json_or_kept(self, part)?)?;
        check_platform(&parsed)?;
        let layers = manifest::layers(&found.manifest, &parsed.diff_ids)?;
        let (mut names, mut tags) = (Vec::new(), Vec::new());
        for name in &found.names {
            let reference = self.reference(name)?;
            tags.extend(reference.tagged());
            names.extend(reference.tagged());
            names.extend(found.target.as_ref().map(|target| reference.pinned(target)));
        }
        let blobs: BTreeSet<Digest> = layers
            .iter()
            .map(|layer| layer.blob.clone())
            .chain(found.documents.iter().cloned())
            .chain([config.clone()])
            .collect();
        let lease = self.state.lease(blobs.iter().cloned().chain(layers.iter().map(|layer| layer.chain.clone())));
        if let Some(text) = &found.made {
            self.content.put(text)?;
        }
        for blob in &blobs {
            match received.blob(blob) {
                Some(part) => received.keep(self, part)?,
                None if self.content.present(blob).is_some() => {}
                None => return Err(missing(blob)),
            }
        }
        Ok(Taken { record: record(&found, blobs, layers, self), parsed, names, tags, lease })
    }
}

/// An image whose blobs are in the content store.
struct Taken {
    record: ImageRecord,
    parsed: Parsed,
    names: Vec<String>,
    tags: Vec<String>,
    lease: Lease,
}

fn find_images(received: &Received) -> Result<Vec<Found>, Error> {
    match (received.file("index.json").is_ok(), received.file("manifest.json").is_ok()) {
        (true, _) => layout::images(received),
        (false, true) => docker::images(received),
        (false, false) => Err(Error::invalid(
            "neither index.json (OCI layout) nor manifest.json (docker archive) is in it: not an image",
        )),
    }
}

fn record(found: &Found, blobs: BTreeSet<Digest>, layers: Vec<LayerRef>, store: &Inner) -> ImageRecord {
    ImageRecord {
        id: found.manifest.config.digest.clone(),
        manifest: found.digest.clone(),
        size: blobs.iter().filter_map(|blob| store.content.size(blob)).sum(),
        layers,
        blobs,
        incomplete: false,
    }
}
