//! Image volumes (KEP-4639): the layers of an image as a read-only overlay. Programs in it can be executed: the KEP
//! dropped `noexec` again, because images contain tools, too. Users can set it in the options of the mount (KEP-5855).

use std::path::PathBuf;

use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use super::{
    EMPTY, EMPTY_TOO, MountOptions,
    layer_options::{LayerNames, with_short_names},
    mount::LowerLayers,
};
use crate::{Digest, Error, Store, state::MountedImage};

/// Most images that one container may mount.
const IMAGES_MAX: usize = 256;

impl Store {
    /// Mounts the layers of an image as an overlay (read-only, no setuid, no devices) and returns it detached. The
    /// layers are kept as long as the writable layer of `key`, even if the image is removed in the meantime.
    ///
    /// # Errors
    /// The writable layer or the image does not exist, or the kernel refuses. The message names both.
    pub fn mount_image(&self, key: &str, image: &str) -> Result<OwnedFd, Error> {
        self.mount_image_with(key, image, &MountOptions::default())
    }

    /// Mounts the layers of an image with options. See [`Store::mount_with`].
    ///
    /// # Errors
    /// See [`Store::mount_image`].
    pub fn mount_image_with(&self, key: &str, image: &str, options: &MountOptions<'_>) -> Result<OwnedFd, Error> {
        let name = |error: Error| error.during(format!("mount image {image} for snapshot {key}"));
        let id = self.inner.resolve(image).map_err(name)?;
        let id = id.ok_or_else(|| name(Error::not_found("no such image; pull it first")))?;
        let layers = self.use_image(key, &id).map_err(name)?;
        let mut lower: Vec<PathBuf> = layers.iter().rev().map(|layer| self.inner.layer_path(layer)).collect();
        // Without an upper directory overlayfs requires two layers.
        for empty in [EMPTY, EMPTY_TOO] {
            if lower.len() < 2 {
                lower.push(self.inner.empty_layer(empty)?);
            }
        }
        overlay(&self.inner.lower(&lower, options))
            .map_err(|(operation, cause)| name(Error::system(format!("{operation}: {cause}"))))
    }

    /// Records that the image is in use, in memory and on disk. Returns its layers, lowest first.
    fn use_image(&self, key: &str, id: &Digest) -> Result<Vec<Digest>, Error> {
        let mut state = self.inner.state.lock();
        let known = state.images.get(id).ok_or_else(|| Error::not_found("the image was removed in the meantime"))?;
        let top = known.record.layers.last().map(|layer| layer.chain.clone());
        let chain = state
            .chain(top.as_ref())
            .map_err(|layer| Error::corrupt(format!("layer {layer} is missing; pull the image again")))?;
        let snapshot = state.snapshots.get_mut(key).ok_or_else(|| Error::not_found("no such snapshot"))?;
        let mounted = MountedImage { image: id.clone(), top, layers: chain.clone() };
        if snapshot.volumes.contains(&mounted) {
            return Ok(chain);
        }
        if snapshot.volumes.len() >= IMAGES_MAX {
            return Err(Error::invalid(format!("more than {IMAGES_MAX} images as volumes of one container")));
        }
        snapshot.volumes.push(mounted);
        let snapshot = snapshot.clone();
        drop(state);
        self.inner.write_record(&self.inner.snapshot_path(key), &snapshot)?;
        Ok(chain)
    }
}

pub(super) fn overlay(lower: &LowerLayers<'_>) -> Result<OwnedFd, (String, Errno)> {
    with_short_names(|names| make(lower, names))
}

fn make(lower: &LowerLayers<'_>, names: LayerNames) -> Result<OwnedFd, (String, Errno)> {
    let failed = |operation: &str| {
        let operation = operation.to_owned();
        move |cause| (operation, cause)
    };
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("fsopen of an overlay"))?;
    let _handles = lower.configure(&overlay, names)?;
    for (option, value) in [("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")] {
        fsconfig_set_string(overlay.as_fd(), option, value).map_err(failed(option))?;
    }
    fsconfig_create(overlay.as_fd()).map_err(failed("create the overlay"))?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed("fsmount of the overlay"))
}
