//! Recovery when a store is opened: leftovers of a crash, an index that is missing or damaged, snapshots of an earlier
//! boot.
//!
//! Nothing here reads a whole layer or blob: see [`crate::repair`]. An I/O error never fails the opening, and what it
//! concerns is kept. Only what is known to be absent is removed.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

use rustix::io::Errno;

use crate::{
    Digest, Error, ErrorKind, Usage,
    error::failed_to,
    image::{CONFIG_MAX, parse_config},
    index::{Change, Form, ImageRecord, IndexContents, IndexState, LayerRecord},
    manifest::{self, Document},
    module, snapshot,
    state::{IncompleteImage, StoredImage},
    store::Inner,
};

/// Largest blob that is parsed as a manifest when there is no record of an image, in bytes.
const MANIFEST_MAX: u64 = 4 * 1024 * 1024;
/// Names in `layers/` that are not layers of images.
pub(crate) const EMPTY_LAYERS: [&str; 2] = ["empty", "empty-too"];

fn boot_id() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).map_err(failed_to("read", path))?.trim().to_owned())
}

/// Logs a failure that must not prevent the opening of the store. Returns whether there was none.
fn tolerate(operation: &str, outcome: Result<(), Error>) -> bool {
    outcome
        .inspect_err(|error| tracing::warn!("open the image store: {operation}: {error}; retrying at the next start"))
        .is_ok()
}

pub(crate) fn recover(store: &Inner, index: IndexState) -> Result<(), Error> {
    let boot = boot_id()?;
    store.state.lock().boot.clone_from(&boot);
    let RecoveredIndex { all, rebuilt, complete } = match index {
        IndexState::Intact(all) => RecoveredIndex { all, rebuilt: false, complete: true },
        IndexState::Missing => rebuild(store, "it is missing or was never filled"),
        IndexState::Damaged(reason) => rebuild(store, &reason),
    };
    store.state.lock().complete = complete;
    let rebooted = !rebuilt && all.boot.as_deref() != Some(boot.as_str());
    // First of all, so that nothing below touches what a container uses.
    let mut certain = tolerate("read the snapshots", snapshot::recover(store, rebooted));
    if !certain {
        store.state.lock().unreadable_snapshots.insert(String::new());
    }
    let verify = all.verify || rebuilt && !all.layers.is_empty() || rebooted && !all.closed && all.boot.is_some();
    store.state.lock().verify = verify;
    let text = if verify { "yes" } else { "no" };
    let mut meta = vec![("closed", "no".into()), ("verify", text.into())];
    // Without the boot id, the next opening rebuilds the index again.
    meta.extend(complete.then_some(("boot", boot)));
    let mut change = Change { meta, ..Change::default() };
    recover_layers(store, &all, &mut change);
    adopt_used_layers(store, &all, &mut change);
    for image in &all.images {
        recover_image(store, image, &all.names, &mut change);
    }
    recover_names(store, &all, &mut change);
    if rebuilt {
        change = Change { meta: change.meta, ..store.state.lock().index_contents().into_change() };
    }
    // The records are changed only after an index that lists the same is on disk.
    let written = tolerate("write the index", store.commit(&change));
    certain &= written && complete;
    if written && complete && (!all.closed || rebuilt || change.lists_differently()) {
        let contents = store.state.lock().index_contents();
        tolerate("write the records", store.records.reconcile(&contents));
    }
    if certain && !rebuilt {
        tolerate("remove unlisted layers", remove_unlisted(store));
        tolerate("collect unused layers and blobs", store.collect());
    }
    Ok(())
}

/// The contents of the index, after it was read or rebuilt.
struct RecoveredIndex {
    all: IndexContents,
    /// Whether the contents were rebuilt, and are not empty.
    rebuilt: bool,
    /// Whether everything that they were rebuilt from could be read.
    complete: bool,
}

/// Rebuilds the contents of the index from the records in the content store, and from the blobs where there are no
/// records.
fn rebuild(store: &Inner, reason: &str) -> RecoveredIndex {
    let (mut all, mut complete) = store.records.read().unwrap_or_else(|error| {
        tracing::warn!("image index: {error}");
        (IndexContents::default(), false)
    });
    let known: HashSet<Digest> = all.images.iter().flat_map(|image| image.blobs.iter().cloned()).collect();
    complete &= store.content.list().is_ok();
    all.images.extend(unrecorded_images(store, &known));
    // A layer without a record is described by an image that has it.
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
    let rebuilt = !all.images.is_empty() || !all.layers.is_empty() || unlisted;
    if rebuilt {
        tracing::warn!(
            "image index: {reason}; rebuilt from the content store: {} images, {} names, {} layers",
            all.images.len(),
            all.names.len(),
            all.layers.len()
        );
    }
    if !complete {
        tracing::error!(
            "image index: not all of the content store can be read; nothing is removed until a later start can read it"
        );
    }
    RecoveredIndex { all, rebuilt, complete }
}

/// Returns the record of a layer of which only the directory is known.
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

/// Returns the images without a record whose manifest, configuration and layers are all among the blobs.
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
    let annotations = module::annotations(&manifest.annotations);
    here.then(|| ImageRecord { id, manifest: blob.clone(), layers, blobs, size, incomplete: false, annotations })
}

/// Whether the directory of a layer exists. An error means that this is unknown.
pub(crate) fn layer_exists(path: &Path) -> Result<bool, Errno> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Keeps the layers that exist, and those of which this is unknown.
fn recover_layers(store: &Inner, all: &IndexContents, change: &mut Change) {
    let mut layers: HashMap<Digest, LayerRecord> = HashMap::new();
    for (chain, record) in &all.layers {
        match layer_exists(&store.layer_path(chain)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    "layer {chain}: its directory is missing; it is unpacked again, or fetched with the next pull"
                );
                change.drop_layers.push(chain.clone());
                continue;
            }
            Err(cause) => {
                tracing::warn!("open layer {chain}: {cause}; kept, retrying in the background");
                store.state.lock().inaccessible.insert(chain.clone());
            }
        }
        layers.insert(chain.clone(), record.clone());
    }
    store.state.lock().layers = layers;
}

/// Lists layers that a container uses and that the index does not list.
fn adopt_used_layers(store: &Inner, all: &IndexContents, change: &mut Change) {
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

/// Lists an image if its configuration and layers exist. Otherwise it is hidden, with what is left of it, until its
/// layers are unpacked again from its blobs or a pull completes it. A hidden image that lacks blobs and was not pulled
/// until the next opening is removed.
fn recover_image(store: &Inner, image: &ImageRecord, names: &[(String, Digest)], change: &mut Change) {
    let missing = {
        let state = store.state.lock();
        image.layers.iter().find(|layer| !state.has_intact(&layer.chain)).cloned()
    };
    let config = store.content.get(&image.id, CONFIG_MAX).and_then(|bytes| parse_config(&bytes));
    let (reason, lost) = match (missing, config) {
        (None, Ok(parsed)) => {
            let record = ImageRecord { incomplete: false, ..image.clone() };
            if image.incomplete {
                change.put_images.push(record.clone());
            }
            let known = StoredImage { record: record.into(), config: parsed.config.into(), raw: parsed.raw.into() };
            store.state.lock().images.insert(image.id.clone(), known);
            return;
        }
        (Some(layer), config) => {
            let blobs = image.layers.iter().all(|layer| store.content.size(&layer.blob).is_some());
            (
                format!("its layer {} is missing or damaged", layer.chain),
                !blobs || config.is_err_and(|error| is_lost(&error)),
            )
        }
        (None, Err(error)) => (error.message.clone(), is_lost(&error)),
    };
    if image.incomplete && lost {
        tracing::warn!("image {}: {reason}, and it was not pulled again; removed", image.id);
        change.drop_images.push(image.id.clone());
        return;
    }
    let remedy = if lost { "pull it again" } else { "unpacking it again in the background" };
    tracing::warn!("image {}: {reason}; {remedy}", image.id);
    let record = ImageRecord { incomplete: true, ..image.clone() };
    change.put_images.push(record.clone());
    let names = names.iter().filter(|(_, id)| *id == image.id).map(|(name, _)| name.clone()).collect();
    store.state.lock().incomplete.insert(image.id.clone(), IncompleteImage { record, names });
}

fn is_lost(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid)
}

fn recover_names(store: &Inner, all: &IndexContents, change: &mut Change) {
    let mut state = store.state.lock();
    for (name, id) in &all.names {
        if state.images.contains_key(id) {
            state.names.insert(name.clone(), id.clone());
        } else if !state.incomplete.contains_key(id) {
            change.drop_names.push(name.clone());
        }
    }
}

/// Removes layers that a crash left between rename and record, or between record and removal.
fn remove_unlisted(store: &Inner) -> Result<(), Error> {
    let used = {
        let state = store.state.lock();
        if !state.unreadable_snapshots.is_empty() {
            return Ok(());
        }
        let mut used = state.layers_in_snapshots();
        used.extend(state.layers.keys().cloned());
        used
    };
    let dir = store.root.join("layers");
    for entry in fs::read_dir(&dir).map_err(failed_to("list", &dir))? {
        let entry = entry.map_err(failed_to("list", &dir))?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let listed = Digest::from_hex(name).is_ok_and(|chain| used.contains(&chain));
        if !listed && !EMPTY_LAYERS.contains(&name) && !store.keep_superseded(&entry.path()) {
            store.trash.remove(&entry.path())?;
        }
    }
    Ok(())
}
