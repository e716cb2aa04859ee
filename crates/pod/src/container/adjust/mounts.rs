//! Adjustments of mounts. Their sources are opened here, on the node: the container sees descriptors only.

use std::path::Path;

use nri::messages::Mount;
use rustix::fd::OwnedFd;

use super::removed;
use crate::{
    Error,
    container::{
        prepare::{Draft, cdi_devices, volume::propagates},
        spec::{ExtraMount, normalize},
    },
};

/// Removes, replaces and adds mounts.
pub(super) fn apply(draft: &mut Draft, mounts: Vec<Mount>) -> Result<(), Error> {
    let mut added = Vec::new();
    for mount in mounts {
        match removed(&mount.destination) {
            Some(path) => {
                remove(draft, path);
                added.retain(|extra: &ExtraMount| normalize(&extra.entry.destination) != normalize(path));
            }
            None => {
                let destination = mount.destination.clone();
                added.push(open(mount).map_err(|error| error.during(format!("mount on {destination}")))?);
            }
        }
    }
    add(draft, added);
    Ok(())
}

fn open(mount: Mount) -> Result<ExtraMount, Error> {
    let Mount { destination, r#type: kind, source, mut options } = mount;
    if !destination.starts_with('/') || destination.contains('\0') || destination.split('/').any(|part| part == "..") {
        return Err(Error::invalid("the path in the container is not absolute, or not valid"));
    }
    let is_bind = |option: &String| option == "bind" || option == "rbind";
    let bind = matches!(kind.as_str(), "" | "bind" | "none") || options.iter().any(is_bind);
    if bind && !options.iter().any(is_bind) {
        options.insert(0, "bind".to_owned());
    }
    if bind && !source.starts_with('/') {
        return Err(Error::invalid(format!("{source:?}: the path on the node is not absolute")));
    }
    let has = |word: &str| options.iter().any(|option| option.strip_prefix('r').unwrap_or(option) == word);
    let tags: &[&str] = match (has("shared"), has("slave")) {
        (true, _) => &["shared:"],
        (_, true) => &["shared:", "master:"],
        _ => &[],
    };
    if bind && !tags.is_empty() && !propagates(Path::new(&source), tags) {
        return Err(Error::invalid(format!(
            "{source}: it is not on a shared mount, from which mounts could propagate; run `mount --make-shared` on \
             that mount"
        )));
    }
    let kind = if bind { "bind".to_owned() } else { kind };
    let entry = oci::Mount { destination, kind: Some(kind), source: Some(source), options, ..oci::Mount::default() };
    let tree = bind.then(|| cdi_devices::open(&entry)).transpose()?;
    Ok(ExtraMount { entry, tree })
}

fn remove(draft: &mut Draft, path: &str) {
    let (path, mut list) = (normalize(path), take(draft));
    list.retain(|mount| normalize(&mount.entry.destination) != path);
    put(draft, list);
}

/// Adds mounts, in place of those on the same paths. Outer paths come before inner ones.
pub(super) fn add(draft: &mut Draft, added: Vec<ExtraMount>) {
    if added.is_empty() {
        return;
    }
    let mut list = take(draft);
    for mount in added {
        let path = normalize(&mount.entry.destination);
        list.retain(|known| normalize(&known.entry.destination) != path);
        list.push(mount);
    }
    list.sort_by_key(|mount| normalize(&mount.entry.destination).matches('/').count());
    put(draft, list);
}

/// Takes the mounts with their descriptors, which the draft has by their index.
fn take(draft: &mut Draft) -> Vec<ExtraMount> {
    let mut trees: std::collections::BTreeMap<u32, OwnedFd> = std::mem::take(&mut draft.mounts).into_iter().collect();
    let entries = std::mem::take(&mut draft.spec.mounts);
    entries.into_iter().zip(0..).map(|(entry, index)| ExtraMount { entry, tree: trees.remove(&index) }).collect()
}

fn put(draft: &mut Draft, list: Vec<ExtraMount>) {
    for (ExtraMount { entry, tree }, index) in list.into_iter().zip(0..) {
        draft.spec.mounts.push(entry);
        draft.mounts.extend(tree.map(|tree| (index, tree)));
    }
}
