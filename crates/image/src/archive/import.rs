//! Import: an archive's images into the store.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{channel, docker, layout, layout::Found, received::Received};
use crate::{
    Digest, Error, Image, Store,
    image::parse_config,
    index::{ImageRecord, LayerRef},
    manifest,
    progress::Listeners,
    pull::{Source, check_platform},
    store::Inner,
};

impl Store {
    /// Takes in every image of a docker archive or an OCI layout in a tar, plain, gzip or zstd. An image without a name gets
    /// none: it is known by its id.
    ///
    /// # Errors
    /// The archive is neither, or damaged, or has nothing for this machine. Nothing is left of it then.
    pub async fn import(&self, archive: &mut (dyn tokio::io::AsyncRead + Send + Unpin)) -> Result<Vec<Image>, Error> {
        let store = self.inner.clone();
        let received = channel::feed(archive, move |reader| Received::from_tar(&store, reader)).await;
        let images = match received {
            Ok(received) => self.inner.clone().take_in(received).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during("import archive"))
    }

    /// As [`Store::import`], from an OCI layout that is a folder.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub async fn import_folder(&self, folder: &Path) -> Result<Vec<Image>, Error> {
        let (store, dir) = (self.inner.clone(), folder.to_owned());
        let received = crate::blocking(move || Received::from_folder(&store, &dir)).await;
        let images = match received {
            Ok(received) => self.inner.clone().take_in(received).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during(format!("import OCI layout {}", folder.display())))
    }
}

impl Inner {
    async fn take_in(self: Arc<Self>, received: Received) -> Result<Vec<Image>, Error> {
        let images = self.take_all(&received).await;
        if images.is_err() {
            let store = self.clone();
            crate::blocking(move || store.collect()).await?;
        }
        images
    }

    async fn take_all(self: &Arc<Self>, received: &Received) -> Result<Vec<Image>, Error> {
        let found = match (received.file("index.json").is_ok(), received.file("manifest.json").is_ok()) {
            (true, _) => layout::images(received)?,
            (false, true) => docker::images(received)?,
            (false, false) => {
                return Err(Error::invalid(
                    "neither index.json (OCI layout) nor manifest.json (docker archive) is in it: not an image",
                ));
            }
        };
        let mut images = Vec::with_capacity(found.len());
        for found in found {
            let digest = found.digest.clone();
            let image =
                self.take_one(received, found).await.map_err(|error| error.during(format!("image {digest}")))?;
            // One image may stand there by several names: what was listed last knows all of them.
            images.retain(|earlier: &Image| earlier.id != image.id);
            images.push(image);
        }
        Ok(images)
    }

    async fn take_one(self: &Arc<Self>, received: &Received, found: Found) -> Result<Image, Error> {
        let missing = |digest: &Digest| Error::invalid(format!("blob {digest} is not in the archive"));
        let config = &found.manifest.config.digest;
        let part = received.blob(config).ok_or_else(|| missing(config))?;
        let parsed = parse_config(&received.json_or_kept(self, part)?)?;
        check_platform(&parsed)?;
        let layers = manifest::layers(&found.manifest, &parsed.diff_ids)?;
        let mut names = Vec::new();
        for name in &found.names {
            let reference = self.reference(name)?;
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
                None if self.content.size(blob).is_some() => {}
                None => return Err(missing(blob)),
            }
        }
        let ready = self.bring_layers(&layers, &Source::Store, &Listeners::default()).await?;
        let record = record(&found, blobs, layers, self);
        let store = self.clone();
        crate::blocking(move || {
            let image = store.list_image(record, parsed, names, ready);
            drop(lease);
            image
        })
        .await
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
