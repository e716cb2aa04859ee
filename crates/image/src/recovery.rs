//! What opening a store makes good: leftovers of a crash, layers that a power cut damaged, snapshots of an earlier boot.

use std::{fs, path::Path};

use rustix::fd::AsFd;

use crate::{
    Digest, Error,
    error::at,
    image::parse_config,
    index::{Change, Everything, ImageRecord, LayerRecord},
    snapshot,
    state::Known,
    store::Inner,
    unpack::remove_path,
    usage,
};

/// Largest image configuration.
pub(crate) const CONFIG_MAX: u64 = 8 * 1024 * 1024;

/// Removes what a crash left on its way in or out.
pub(crate) fn empty(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(at("list", dir))? {
        let path = entry.map_err(at("list", dir))?.path();
        remove_path(&path).map_err(at("remove", &path))?;
    }
    Ok(())
}

fn boot_id() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).map_err(at("read", path))?.trim().to_owned())
}

pub(crate) fn recover(store: &Inner) -> Result<(), Error> {
    let all = store.index().read()?;
    let boot = boot_id()?;
    let rebooted = all.boot.as_deref() != Some(boot.as_str());
    let mut change = Change { meta: vec![("boot", boot), ("closed", "no".into())], ..Change::default() };
    let verify = rebooted && !all.closed && all.boot.is_some();
    take_layers(store, &all, verify, &mut change);
    for image in &all.images {
        take_image(store, image, &mut change);
    }
    for (name, id) in &all.names {
        let mut state = store.state.lock();
        match state.images.contains_key(id) {
            true => drop(state.names.insert(name.clone(), id.clone())),
            false => change.drop_names.push(name.clone()),
        }
    }
    store.index().apply(&change)?;
    snapshot::recover(store, rebooted)?;
    remove_unlisted(store)?;
    store.collect()
}

/// Keeps the layers that are there (and, if asked, whole), with their parents.
fn take_layers(store: &Inner, all: &Everything, verify: bool, change: &mut Change) {
    let mut good: std::collections::HashMap<Digest, LayerRecord> = all.layers.iter().cloned().collect();
    for (chain, record) in &all.layers {
        if let Err(why) = check(&store.layer_path(chain), record, verify) {
            tracing::warn!("layer {chain}: {why}; dropped, it is fetched again with the next pull of its image");
            good.remove(chain);
        }
    }
    for (chain, _) in &all.layers {
        if !good.contains_key(chain) {
            change.drop_layers.push(chain.clone());
        }
    }
    store.state.lock().layers = good;
}

fn check(path: &Path, record: &LayerRecord, verify: bool) -> Result<(), String> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|cause| format!("open: {cause}"))?;
    if !verify {
        return Ok(());
    }
    let found = usage::measure(folder.as_fd()).map_err(|cause| format!("read: {cause}"))?;
    match (found.usage.inodes, found.length) == (record.usage.inodes, record.length) {
        true => Ok(()),
        false => Err(format!(
            "{} files of {} bytes were written, {} of {} are there",
            record.usage.inodes, record.length, found.usage.inodes, found.length
        )),
    }
}

/// An image stays listed if its configuration and layers are there. Else it is kept out of sight, with the layers it still
/// has, until a pull makes it whole; one that was not pulled until the next opening goes.
fn take_image(store: &Inner, image: &ImageRecord, change: &mut Change) {
    let mut state = store.state.lock();
    let missing = image.layers.iter().find(|layer| !state.layers.contains_key(&layer.chain));
    let config = store.content.get(&image.id, CONFIG_MAX).and_then(|bytes| parse_config(&bytes));
    let why = match (missing, config) {
        (None, Ok(parsed)) => {
            let record = ImageRecord { incomplete: false, ..image.clone() };
            let known = Known { record: record.into(), config: parsed.config.into(), raw: parsed.raw.into() };
            state.images.insert(image.id.clone(), known);
            return;
        }
        (Some(layer), _) => format!("its layer {} is gone", layer.chain),
        (None, Err(error)) => error.message,
    };
    tracing::warn!("image {}: {why}; pull it again", image.id);
    if image.incomplete {
        change.drop_images.push(image.id.clone());
    } else {
        let record = ImageRecord { incomplete: true, ..image.clone() };
        state.incomplete.insert(image.id.clone(), record.clone());
        change.put_images.push(record);
    }
}

/// Layers that a crash left between rename and record, or between record and removal.
fn remove_unlisted(store: &Inner) -> Result<(), Error> {
    let dir = store.root.join("layers");
    for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
        let entry = entry.map_err(at("list", &dir))?;
        let listed = entry.file_name().to_str().and_then(|name| Digest::from_hex(name).ok());
        if !listed.is_some_and(|chain| store.state.lock().layers.contains_key(&chain)) {
            store.trash.take(&entry.path())?;
        }
    }
    Ok(())
}
