//! Import: adds the images of an archive to the store.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{channel, docker, files::ArchiveFiles, layout, layout::ArchiveImage};
use crate::{
    Digest, Error, Image, Store,
    image::{ParsedConfig, parse_config},
    index::{ImageRecord, LayerRef},
    manifest, module,
    progress::Listeners,
    pull::{Source, check_platform},
    single_flight::CancelToken,
    state::Lease,
    store::Inner,
};

/// An image that was imported from an archive.
#[derive(Clone, Debug)]
pub struct ImportedImage {
    /// The image as it is in the store now.
    pub image: Image,
    /// Tags that the archive gives the image. In the store it may have others, too.
    pub tags: Vec<String>,
}

impl Store {
    /// Imports every image of a docker archive or an OCI layout in a tar, plain, gzip or zstd. An image without a name
    /// in the archive is listed by its id only.
    ///
    /// # Errors
    /// The archive is neither of the two, is damaged, or has no image for this machine. Nothing of it is kept then.
    pub async fn import(
        &self,
        archive: &mut (dyn tokio::io::AsyncRead + Send + Unpin),
    ) -> Result<Vec<ImportedImage>, Error> {
        let _permit = self.inner.transfers.archives.acquire().await;
        let store = self.inner.clone();
        let files =
            channel::feed(&self.inner.disk, archive, move |reader| ArchiveFiles::from_tar(&store, reader)).await;
        let images = match files {
            Ok(files) => self.inner.clone().import_images(files).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during("import archive"))
    }

    /// Imports every image of an OCI layout in a directory.
    ///
    /// # Errors
    /// See [`Store::import`].
    pub async fn import_directory(&self, directory: &Path) -> Result<Vec<ImportedImage>, Error> {
        let (store, dir) = (self.inner.clone(), directory.to_owned());
        let files = self.inner.disk.run_long(move || ArchiveFiles::from_directory(&store, &dir)).await;
        let images = match files {
            Ok(files) => self.inner.clone().import_images(files).await,
            Err(error) => Err(error),
        };
        images.map_err(|error| error.during(format!("import OCI layout {}", directory.display())))
    }
}

impl Inner {
    async fn import_images(self: Arc<Self>, files: ArchiveFiles) -> Result<Vec<ImportedImage>, Error> {
        let images = self.import_all(&Arc::new(files)).await;
        if images.is_err() {
            let store = self.clone();
            self.disk.run_long(move || store.collect()).await?;
        }
        images
    }

    async fn import_all(self: &Arc<Self>, files: &Arc<ArchiveFiles>) -> Result<Vec<ImportedImage>, Error> {
        let archive = files.clone();
        let archive_images = self.disk.run_long(move || find_images(&archive)).await?;
        let mut images: Vec<ImportedImage> = Vec::with_capacity(archive_images.len());
        for archive_image in archive_images {
            let digest = archive_image.digest.clone();
            let ImportedImage { image, tags } =
                self.import_one(files, archive_image).await.map_err(|error| error.during(format!("image {digest}")))?;
            // An archive may list one image several times, under different names.
            match images.iter_mut().find(|earlier| earlier.image.id == image.id) {
                Some(earlier) => {
                    earlier.image = image;
                    earlier.tags.extend(tags);
                }
                None => images.push(ImportedImage { image, tags }),
            }
        }
        Ok(images)
    }

    async fn import_one(
        self: &Arc<Self>,
        files: &Arc<ArchiveFiles>,
        archive_image: ArchiveImage,
    ) -> Result<ImportedImage, Error> {
        let (store, archive) = (self.clone(), files.clone());
        let moved = self.disk.run_long(move || store.move_blobs(&archive, archive_image)).await?;
        let ImportedBlobs { record, parsed, names, tags, lease } = moved;
        let (listeners, cancel) = (Listeners::default(), CancelToken::never());
        let ready = self.ensure_layers(&record.layers, &Source::Store, &listeners, &cancel).await?;
        let store = self.clone();
        let list = move || {
            let image = store.list_image(record, parsed, names, ready);
            drop(lease);
            image
        };
        Ok(ImportedImage { image: self.disk.run_long(list).await?, tags })
    }

    /// Moves an image's blobs to the content store. Blocks.
    fn move_blobs(&self, files: &ArchiveFiles, archive_image: ArchiveImage) -> Result<ImportedBlobs, Error> {
        let missing = |digest: &Digest| Error::invalid(format!("blob {digest} is not in the archive"));
        let config = &archive_image.manifest.config.digest;
        let archive_file = files.blob(config).ok_or_else(|| missing(config))?;
        let parsed = parse_config(&files.json_or_stored(self, archive_file)?)?;
        check_platform(&parsed)?;
        let layers = manifest::layers(&archive_image.manifest, &parsed.diff_ids)?;
        let (mut names, mut tags) = (Vec::new(), Vec::new());
        for name in &archive_image.names {
            let reference = self.reference(name)?;
            tags.extend(reference.tagged());
            names.extend(reference.tagged());
            names.extend(archive_image.target.as_ref().map(|target| reference.pinned(target)));
        }
        let blobs: BTreeSet<Digest> = layers
            .iter()
            .map(|layer| layer.blob.clone())
            .chain(archive_image.documents.iter().cloned())
            .chain([config.clone()])
            .collect();
        let lease = self.state.lease(blobs.iter().cloned().chain(layers.iter().map(|layer| layer.chain.clone())));
        if let Some(text) = &archive_image.generated_manifest {
            self.content.put(text)?;
        }
        for blob in &blobs {
            match files.blob(blob) {
                Some(archive_file) => files.move_to_content(self, archive_file)?,
                None if self.content.present(blob).is_some() => {}
                None => return Err(missing(blob)),
            }
        }
        Ok(ImportedBlobs { record: record(&archive_image, blobs, layers, self), parsed, names, tags, lease })
    }
}

/// An image whose blobs are in the content store.
struct ImportedBlobs {
    record: ImageRecord,
    parsed: ParsedConfig,
    names: Vec<String>,
    tags: Vec<String>,
    lease: Lease,
}

fn find_images(files: &ArchiveFiles) -> Result<Vec<ArchiveImage>, Error> {
    match (files.file("index.json").is_ok(), files.file("manifest.json").is_ok()) {
        (true, _) => layout::images(files),
        (false, true) => docker::images(files),
        (false, false) => Err(Error::invalid(
            "not an image archive: it has neither index.json (OCI layout) nor manifest.json (docker archive)",
        )),
    }
}

fn record(archive_image: &ArchiveImage, blobs: BTreeSet<Digest>, layers: Vec<LayerRef>, store: &Inner) -> ImageRecord {
    ImageRecord {
        id: archive_image.manifest.config.digest.clone(),
        manifest: archive_image.digest.clone(),
        size: blobs.iter().filter_map(|blob| store.content.size(blob)).sum(),
        layers,
        blobs,
        incomplete: false,
        annotations: module::annotations(&archive_image.manifest.annotations),
    }
}
