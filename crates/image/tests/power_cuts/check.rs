//! What must be true after the power was cut.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use image::{Digest, Registries, Store};

use crate::{
    disk::Disk,
    node::{tree, until_deleted},
    workload::{Expected, FILES, Truth},
};

/// A disk as a power cut left it.
pub(crate) struct Cut {
    pub(crate) file: PathBuf,
    pub(crate) point: String,
    pub(crate) expected: Expected,
}

/// Returns all files of the store with their lengths, except those that change at each opening.
fn listing(store: &Path) -> Vec<(String, u64)> {
    let changing = ["index.redb", "lock", "format", "reserve"];
    let paths = tree(store).into_iter().filter(|path| !changing.contains(&path.as_str()));
    paths.map(|path| (path.clone(), store.join(&path).symlink_metadata().unwrap().len())).collect()
}

/// Checks every file of every listed image. Returns names and ids of the images.
fn check(store: &Store, cut: &Cut, truth: &Truth) -> BTreeSet<(String, String)> {
    let mut listed = BTreeSet::new();
    for known in store.list() {
        listed.extend(known.repo_tags.iter().map(|tag| (tag.clone(), known.id.clone())));
        let (number, image) = &truth.images[&known.id];
        let mut parent: Option<Digest> = None;
        for (layer, seed) in image.layers.iter().zip([1000 + number % 3, *number]) {
            let chain = Digest::chain(parent.as_ref(), &Digest::of(&layer.tar));
            let dir = store.root().join("layers").join(chain.hex());
            for file in 0..FILES {
                let path = dir.join(format!("d/{seed}-{file}"));
                let bytes =
                    fs::read(&path).unwrap_or_else(|cause| panic!("{}: {}: {cause}", cut.point, path.display()));
                assert!(bytes == truth.files[&(seed, file)], "{}: {} is damaged", cut.point, path.display());
            }
            assert_eq!(tree(&dir).len(), usize::from(FILES) + 2, "{}", cut.point);
            let blob = store.root().join("content/blobs/sha256").join(Digest::of(&layer.blob).hex());
            assert!(fs::read(&blob).unwrap() == layer.blob, "{}: {} is damaged", cut.point, blob.display());
            parent = Some(chain);
        }
    }
    for (name, meanings) in &cut.expected {
        let id = listed.iter().find(|(known, _)| known == name).map(|(_, id)| id.clone());
        assert!(meanings.contains(&id), "after {}: {name} is {id:?}, must be one of {meanings:?}", cut.point);
    }
    listed
}

/// Opens the store on a copy of the disk, as after a reboot, and checks it.
pub(crate) async fn start_again(dir: &Path, kind: &str, cut: &Cut, truth: &Truth) {
    let disk = Disk::attach(&cut.file, kind, &dir.join("again"));
    let path = disk.mounted.join("store");
    let open = || Store::open(&path, Registries::default()).unwrap_or_else(|error| panic!("{}: {error}", cut.point));
    let store = open();
    let listed = check(&store, cut, truth);
    assert!(store.repair().await.unwrap(), "{}: something had to be repaired", cut.point);
    assert_eq!(check(&store, cut, truth), listed, "{}", cut.point);
    until_deleted(&path);
    drop(store);
    let first = listing(&path);
    let store = open();
    assert_eq!(check(&store, cut, truth), listed, "{}: the second opening", cut.point);
    until_deleted(&path);
    drop(store);
    assert_eq!(listing(&path), first, "{}: the second opening changed something", cut.point);
    drop(disk);
    fs::remove_file(&cut.file).unwrap();
}
