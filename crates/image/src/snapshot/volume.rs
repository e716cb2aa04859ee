//! Images as volumes (KEP-4639): their layers as a read-only overlay. Programs in it can be executed: the KEP dropped
//! `noexec` again, as images carry tools, too; who does not want that says so in the mount's options (KEP-5855).

use std::path::PathBuf;

use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use super::{
    Appearance, EMPTY, EMPTY_TOO,
    mount::{Lower, Names, with_room},
};
use crate::{Digest, Error, Store, state::MountedImage};

/// Most images that one container mounts.
const MOST: usize = 256;

impl Store {
    /// An image's files as a detached overlay mount: read-only, no setuid, no devices. Its layers stay
    /// for as long as the writable layer of `key` does, also when the image is removed meanwhile.
    ///
    /// # Errors
    /// The writable layer or the image is not there, or the kernel refuses; names both.
    pub fn mount_image(&self, key: &str, image: &str) -> Result<OwnedFd, Error> {
        self.mount_image_as(key, image, &Appearance::default())
    }

    /// The same, its files looking so; see [`Store::mount_as`].
    ///
    /// # Errors
    /// As [`Store::mount_image`].
    pub fn mount_image_as(&self, key: &str, image: &str, appearance: &Appearance<'_>) -> Result<OwnedFd, Error> {
        let name = |error: Error| error.during(format!("mount image {image} for snapshot {key}"));
        let id = self.inner.resolve(image).map_err(name)?;
        let id = id.ok_or_else(|| name(Error::not_found("no such image; pull it first")))?;
        let layers = self.use_image(key, &id).map_err(name)?;
        let mut lower: Vec<PathBuf> = layers.iter().rev().map(|layer| self.inner.layer_path(layer)).collect();
        // Without an upper directory overlayfs wants two layers.
        for empty in [EMPTY, EMPTY_TOO] {
            if lower.len() < 2 {
                lower.push(self.inner.empty_layer(empty)?);
            }
        }
        overlay(&self.inner.lower(&lower, appearance))
            .map_err(|(what, cause)| name(Error::system(format!("{what}: {cause}"))))
    }

    /// Notes that the image is in use, here and in the record; its layers, the lowest first.
    fn use_image(&self, key: &str, id: &Digest) -> Result<Vec<Digest>, Error> {
        let mut state = self.inner.state.lock();
        let known = state.images.get(id).ok_or_else(|| Error::not_found("it was just removed"))?;
        let top = known.record.layers.last().map(|layer| layer.chain.clone());
        let chain = state
            .chain(top.as_ref())
            .map_err(|layer| Error::corrupt(format!("layer {layer} is gone; pull the image again")))?;
        let snapshot = state.snapshots.get_mut(key).ok_or_else(|| Error::not_found("no such snapshot"))?;
        let mounted = MountedImage { image: id.clone(), top, layers: chain.clone() };
        if snapshot.volumes.contains(&mounted) {
            return Ok(chain);
        }
        if snapshot.volumes.len() >= MOST {
            return Err(Error::invalid(format!("more than {MOST} images as volumes of one container")));
        }
        snapshot.volumes.push(mounted);
        let snapshot = snapshot.clone();
        drop(state);
        self.inner.write_record(&self.inner.snapshot_path(key), &snapshot)?;
        Ok(chain)
    }
}

pub(super) fn overlay(lower: &Lower<'_>) -> Result<OwnedFd, (String, Errno)> {
    with_room(|names| make(lower, names))
}

fn make(lower: &Lower<'_>, names: Names) -> Result<OwnedFd, (String, Errno)> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |cause| (what, cause)
    };
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("fsopen of an overlay"))?;
    let _given = lower.give(&overlay, names)?;
    for (option, value) in [("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")] {
        fsconfig_set_string(overlay.as_fd(), option, value).map_err(failed(option))?;
    }
    fsconfig_create(overlay.as_fd()).map_err(failed("create the overlay"))?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed("fsmount of the overlay"))
}
