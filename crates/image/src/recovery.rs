//! What opening a store repairs: leftovers of a crash, an index that is missing or damaged, snapshots of an earlier
//! boot.
//!
//! Nothing here reads a layer or a blob as a whole: see [`crate::keeper`]. An error of the disk keeps what it concerns,
//! and never fails the opening; only what is known to be absent is dropped.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

use rustix::io::Errno;

use crate::{
    Digest, Error, ErrorKind, Usage,
    error::at,
    image::parse_config,
    index::{Change, Everything, Form, Found, ImageRecord, LayerRecord},
    manifest::{self, Document},
    snapshot,
    state::{Incomplete, Known},
    store::Inner,
};

/// Largest image configuration.
pub(crate) const CONFIG_MAX: u64 = 8 * 1024 * 1024;
/// Largest blob that is tried as a manifest when no record of an image is left.
const MANIFEST_MAX: u64 = 4 * 1024 * 1024;
/// Names in `layers/` that are no layers.
pub(crate) const EMPTY_LAYERS: [&str; 2] = ["empty", "empty-too"];

fn boot_id() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).map_err(at("read", path))?.trim().to_owned())
}

/// Logs a failure that must not keep the store from being opened.
fn tolerate(what: &str, outcome: Result<(), Error>) -> bool {
    outcome
        .inspect_err(|error| tracing::warn!("open the image store: {what}: {error}; retrying at the next start"))
        .is_ok()
}

pub(crate) fn recover(store: &Inner, found: Found) -> Result<(), Error> {
    let boot = boot_id()?;
    store.state.lock().boot.clone_from(&boot);
    let Listed { all, rebuilt, complete } = match found {
        Found::Whole(all) => Listed { all, rebuilt: false, complete: true },
        Found::Missing => rebuild(store, "it is missing or was never filled"),
        Found::Damaged(why) => rebuild(store, &why),
    };
    store.state.lock().complete = complete;
    let rebooted = !rebuilt && all.boot.as_deref() != Some(boot.as_str());
    // First of all: what a container uses is not touched below.
    let mut certain = tolerate("read the snapshots", snapshot::recover(store, rebooted));
    if !certain {
        store.state.lock().unreadable.insert(String::new());
    }
    let verify = all.verify || rebuilt && !all.layers.is_empty() || rebooted && !all.closed && all.boot.is_some();
    store.state.lock().verify = verify;
    let answer = if verify { "yes" } else { "no" };
    let mut meta = vec![("closed", "no".into()), ("verify", answer.into())];
    // Without it, the next opening rebuilds the index again.
    meta.extend(complete.then_some(("boot", boot)));
    let mut change = Change { meta, ..Change::default() };
    take_layers(store, &all, &mut change);
    adopt_used_layers(store, &all, &mut change);
    for image in &all.images {
        take_image(store, image, &all.names, &mut change);
    }
    take_names(store, &all, &mut change);
    if rebuilt {
        change = Change { meta: change.meta, ..store.state.lock().everything().into_change() };
    }
    // The records are changed only after an index that lists the same is on disk.
    let written = tolerate("write the index", store.commit(&change));
    certain &= written && complete;
    if written && complete && (!all.closed || rebuilt || change.lists_differently()) {
        let everything = store.state.lock().everything();
        tolerate("write the records", store.records.reconcile(&everything));
    }
    if certain && !rebuilt {
        tolerate("remove unlisted layers", remove_unlisted(store));
        tolerate("remove what nothing needs", store.collect());
    }
    Ok(())
}

/// What the store has.
struct Listed {
    all: Everything,
    /// Not from the index, and not nothing.
    rebuilt: bool,
    /// Everything that it was rebuilt from could be read.
    complete: bool,
}

/// What the index listed, from the records in the content store; from the blobs alone where there are no records.
fn rebuild(store: &Inner, why: &str) -> Listed {
    let (mut all, mut complete) = store.records.read().unwrap_or_else(|error| {
        tracing::warn!("image index: {error}");
        (Everything::default(), false)
    });
    let known: HashSet<Digest> = all.images.iter().flat_map(|image| image.blobs.iter().cloned()).collect();
    complete &= store.content.list().is_ok();
    all.images.extend(unrecorded_images(store, &known));
    // A layer without a record has its place in an image.
    let recorded: HashSet<Digest> = all.layers.iter().map(|(chain, _)| chain.clone()).collect();
    for image in &all.images {
        let mut parent = None;
        for layer in &image.layers {
            if !recorded.contains(&layer.chain) && store.layer_path(&layer.chain).is_dir() {
                all.layers.push((layer.chain.clone(), unmeasured(parent.clone())));
            }
            parent = Some(layer.chain.clone());
        }
    }
    let unlisted = fs::read_dir(store.root.join("layers")).is_ok_and(|mut layers| layers.next().is_some());
    let anything = !all.images.is_empty() || !all.layers.is_empty() || unlisted;
    if anything {
        tracing::warn!(
            "image index: {why}; rebuilt from the content store: {} images, {} names, {} layers",
            all.images.len(),
            all.names.len(),
            all.layers.len()
        );
    }
    if !complete {
        tracing::error!(
            "image index: not all of the content store can be read; nothing is removed until the next start can read it"
        );
    }
    Listed { all, rebuilt: anything, complete }
}

/// A layer of which only the directory is known.
fn unmeasured(parent: Option<Digest>) -> LayerRecord {
    LayerRecord {
        parent,
        form: Form::Directory,
        usage: Usage::default(),
        length: 0,
        diff_id: None,
        digest: None,
        damaged: false,
    }
}

/// Images whose manifest, configuration and layers are all among the blobs, and of which no record is left.
fn unrecorded_images(store: &Inner, known: &HashSet<Digest>) -> Vec<ImageRecord> {
    let blobs = store.content.list().unwrap_or_default();
    let small =
        |blob: &&Digest| !known.contains(*blob) && store.content.size(blob).is_some_and(|size| size <= MANIFEST_MAX);
    blobs.iter().filter(small).filter_map(|blob| unrecorded_image(store, blob)).collect()
}

fn unrecorded_image(store: &Inner, blob: &Digest) -> Option<ImageRecord> {
    let bytes = store.content.get(blob, MANIFEST_MAX).ok()?;
    let Ok(Document::Image(manifest)) = manifest::parse(&bytes, "") else { return None };
    let id = manifest.config.digest.clone();
    let config = store.content.get(&id, CONFIG_MAX).ok()?;
    let layers = manifest::layers(&manifest, &parse_config(&config).ok()?.diff_ids).ok()?;
    let here = layers.iter().all(|layer| store.content.size(&layer.blob) == Some(layer.size));
    let blobs = layers.iter().map(|layer| layer.blob.clone()).chain([id.clone(), blob.clone()]).collect();
    let size = layers.iter().map(|layer| layer.size).sum::<u64>() + bytes.len() as u64 + config.len() as u64;
    here.then(|| ImageRecord { id, manifest: blob.clone(), layers, blobs, size, incomplete: false })
}

/// Whether the directory of a layer is there; an error: not known.
pub(crate) fn layer_exists(path: &Path) -> Result<bool, Errno> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Keeps the layers that are there, and those of which that is not known.
fn take_layers(store: &Inner, all: &Everything, change: &mut Change) {
    let mut layers: HashMap<Digest, LayerRecord> = HashMap::new();
    for (chain, record) in &all.layers {
        match layer_exists(&store.layer_path(chain)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    "layer {chain}: its directory is gone; it is unpacked again, or fetched with the next pull"
                );
                change.drop_layers.push(chain.clone());
                continue;
            }
            Err(cause) => {
                tracing::warn!("layer {chain}: open: {cause}; kept, retrying in the background");
                store.state.lock().unknown.insert(chain.clone());
            }
        }
        layers.insert(chain.clone(), record.clone());
    }
    store.state.lock().layers = layers;
}

/// Lists the layers again that a container uses and the index does not know.
fn adopt_used_layers(store: &Inner, all: &Everything, change: &mut Change) {
    let chains: Vec<Vec<Digest>> = {
        let state = store.state.lock();
        state
            .snapshots
            .values()
            .flat_map(|snapshot| snapshot.chains().map(<[Digest]>::to_vec).collect::<Vec<_>>())
            .collect()
    };
    for chain in chains {
        let mut parent: Option<Digest> = None;
        for layer in chain {
            let listed =
                all.layers.iter().any(|(known, _)| *known == layer) || store.state.lock().layers.contains_key(&layer);
            if !listed && layer_exists(&store.layer_path(&layer)) != Ok(false) {
                tracing::warn!("layer {layer}: a container uses it and the index does not list it; listed again");
                let record = unmeasured(parent.clone());
                change.put_layers.push((layer.clone(), record.clone()));
                store.state.lock().layers.insert(layer.clone(), record);
            }
            parent = Some(layer);
        }
    }
}

/// An image stays listed if its configuration and layers are there. Else it is kept out of sight, with what it still
/// has, until it is unpacked again from its blobs or a pull makes it whole; one that lacks blobs and was not pulled
/// until the next opening goes.
fn take_image(store: &Inner, image: &ImageRecord, names: &[(String, Digest)], change: &mut Change) {
    let missing = {
        let state = store.state.lock();
        image.layers.iter().find(|layer| !state.has_intact(&layer.chain)).cloned()
    };
    let config = store.content.get(&image.id, CONFIG_MAX).and_then(|bytes| parse_config(&bytes));
    let (why, lost) = match (missing, config) {
        (None, Ok(parsed)) => {
            let record = ImageRecord { incomplete: false, ..image.clone() };
            if image.incomplete {
                change.put_images.push(record.clone());
            }
            let known = Known { record: record.into(), config: parsed.config.into(), raw: parsed.raw.into() };
            store.state.lock().images.insert(image.id.clone(), known);
            return;
        }
        (Some(layer), config) => {
            let blobs = image.layers.iter().all(|layer| store.content.size(&layer.blob).is_some());
            (
                format!("its layer {} is gone or damaged", layer.chain),
                !blobs || config.is_err_and(|error| is_lost(&error)),
            )
        }
        (None, Err(error)) => (error.message.clone(), is_lost(&error)),
    };
    if image.incomplete && lost {
        tracing::warn!("image {}: {why}, and it was not pulled again; removed", image.id);
        change.drop_images.push(image.id.clone());
        return;
    }
    let way_out = if lost { "pull it again" } else { "unpacking it again in the background" };
    tracing::warn!("image {}: {why}; {way_out}", image.id);
    let record = ImageRecord { incomplete: true, ..image.clone() };
    change.put_images.push(record.clone());
    let names = names.iter().filter(|(_, id)| *id == image.id).map(|(name, _)| name.clone()).collect();
    store.state.lock().incomplete.insert(image.id.clone(), Incomplete { record, names });
}

fn is_lost(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid)
}

fn take_names(store: &Inner, all: &Everything, change: &mut Change) {
    let mut state = store.state.lock();
    for (name, id) in &all.names {
        if state.images.contains_key(id) {
            state.names.insert(name.clone(), id.clone());
        } else if !state.incomplete.contains_key(id) {
            change.drop_names.push(name.clone());
        }
    }
}

/// Layers that a crash left between rename and record, or between record and removal.
fn remove_unlisted(store: &Inner) -> Result<(), Error> {
    let used = {
        let state = store.state.lock();
        if !state.unreadable.is_empty() {
            return Ok(());
        }
        let mut used = state.layers_in_snapshots();
        used.extend(state.layers.keys().cloned());
        used
    };
    let dir = store.root.join("layers");
    for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
        let entry = entry.map_err(at("list", &dir))?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let listed = Digest::from_hex(name).is_ok_and(|chain| used.contains(&chain));
        if !listed && !EMPTY_LAYERS.contains(&name) && !store.keep_superseded(&entry.path()) {
            store.trash.take(&entry.path())?;
        }
    }
    Ok(())
}
