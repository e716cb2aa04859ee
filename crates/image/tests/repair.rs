//! Images that are hidden until they are complete again, layers that could not be listed, and what a repair reads.

mod node;

use std::fs;

use image::Digest;
use node::{PATIENCE, archive, blob_file, flip, layer_dirs, load, open, set_meta, tree, two_layers, unclean_boot};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use testbed::wait_until;

const NAME: &str = "localhost/a:1";
const OTHER: &str = "localhost/b:1";

/// Fills a store, removes a layer of its image, and returns the id of the image.
async fn with_a_lost_layer(dir: &std::path::Path) -> String {
    let store = open(dir);
    let id = load(&store, &two_layers(1), NAME).await.id;
    load(&store, &two_layers(1), OTHER).await;
    drop(store);
    fs::remove_dir_all(&layer_dirs(dir, &two_layers(1))[0]).unwrap();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_image_can_be_removed() {
    for by_id in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let id = with_a_lost_layer(dir.path()).await;
        let store = open(dir.path());
        assert!(store.list().is_empty(), "hidden");
        store.remove(if by_id { &id } else { NAME }).await.unwrap();
        assert!(store.repair().await.unwrap());
        assert!(store.list().is_empty(), "a removed image does not come back");
        assert!(!blob_file(dir.path(), &two_layers(1), 0).exists());
        drop(store);
        assert!(open(dir.path()).list().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_of_a_hidden_image_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    with_a_lost_layer(dir.path()).await;
    let store = open(dir.path());
    store.untag(NAME).await.unwrap();
    // Another start loses what is only in memory.
    drop(store);
    let store = open(dir.path());
    assert!(store.repair().await.unwrap());
    assert_eq!(store.find(OTHER).unwrap().unwrap().repo_tags, [OTHER]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_could_not_be_listed_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &two_layers(1), NAME).await;
    let (records, aside) = (dir.path().join("content/records"), dir.path().join("content/aside"));
    fs::rename(&records, &aside).unwrap();
    store.import(&mut &archive(&two_layers(2), OTHER)[..]).await.unwrap_err();
    fs::rename(&aside, &records).unwrap();
    for layer in layer_dirs(dir.path(), &two_layers(2)) {
        assert!(!layer.exists(), "{}", layer.display());
    }
    let recorded = |id: &Digest| records.join(format!("image-{}", id.hex())).exists();
    assert!(!recorded(&Digest::of(&two_layers(2).config())));
    load(&store, &two_layers(2), OTHER).await;
    assert_eq!(store.list().len(), 2);
    assert_eq!(tree(&dir.path().join("layers")).iter().filter(|path| !path.contains('/')).count(), 4);
}

fn read(root: &OwnedFd, path: &str) -> Vec<u8> {
    let fd = rustix::fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut fs::File::from(fd), &mut bytes).unwrap();
    bytes
}

/// Counts the directories of damaged layers that are kept.
fn superseded(dir: &std::path::Path) -> usize {
    fs::read_dir(dir.join("layers"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some())
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_in_use_is_replaced_for_new_containers() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &two_layers(1), NAME).await;
    store.prepare("old", NAME).unwrap();
    store.prepare("stopped", NAME).unwrap();
    let old = store.mount("old", false).unwrap();
    drop(store);
    let file = layer_dirs(dir.path(), &two_layers(1))[1].join("d/1-2-3");
    let good = fs::read(&file).unwrap();
    flip(&file);
    unclean_boot(dir.path());
    let store = open(dir.path());
    assert!(store.repair().await.unwrap(), "repaired although a container uses it");
    assert_eq!(fs::read(&file).unwrap(), good);
    // Existing mounts keep the damaged layer.
    assert_ne!(read(&old, "d/1-2-3"), good);
    assert_eq!(read(&old, "d/1-2-4").len(), 3000);
    store.prepare("new", NAME).unwrap();
    for key in ["new", "stopped"] {
        assert_eq!(read(&store.mount(key, false).unwrap(), "d/1-2-3"), good, "{key}");
    }
    // Also across restarts of the daemon.
    drop(store);
    let store = open(dir.path());
    assert!(store.repair().await.unwrap());
    assert_eq!(superseded(dir.path()), 1);
    assert_eq!(read(&old, "d/1-2-5").len(), 3000);
    for key in ["old", "stopped", "new"] {
        assert_eq!(superseded(dir.path()), 1);
        store.discard(key).unwrap();
    }
    assert_eq!(superseded(dir.path()), 0);
    assert!(store.find(NAME).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_a_damaged_layer_stays_hidden_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &two_layers(1), NAME).await;
    store.prepare("c", NAME).unwrap();
    drop(store);
    let layer = &layer_dirs(dir.path(), &two_layers(1))[0];
    flip(&layer.join("d/1-1-3"));
    let blob = blob_file(dir.path(), &two_layers(1), 0);
    fs::write(&blob, vec![9; two_layers(1).layers[0].blob.len()]).unwrap();
    unclean_boot(dir.path());
    let store = open(dir.path());
    assert!(!store.repair().await.unwrap());
    assert!(store.find(NAME).unwrap().is_none(), "no new container uses it");
    assert!(layer.exists(), "the old one keeps it");
    drop(store);
    let store = open(dir.path());
    assert!(store.find(NAME).unwrap().is_none());
    load(&store, &two_layers(1), NAME).await;
    assert!(store.repair().await.unwrap());
    assert!(store.find(NAME).unwrap().is_some());
    drop(store);
    set_meta(dir.path(), &[("verify", "yes")]);
    assert!(open(dir.path()).repair().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_verified_once_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &two_layers(1), NAME).await;
    load(&store, &two_layers(2), OTHER).await;
    store.prepare("c", OTHER).unwrap();
    store.remove(OTHER).await.unwrap();
    drop(store);
    flip(&layer_dirs(dir.path(), &two_layers(2))[0].join("d/2-1-3"));
    unclean_boot(dir.path());
    let store = open(dir.path());
    assert!(!store.repair().await.unwrap(), "there is nothing to repair it from");
    let file = layer_dirs(dir.path(), &two_layers(1))[0].join("d/1-1-3");
    flip(&file);
    let flipped = fs::read(&file).unwrap();
    assert!(!store.repair().await.unwrap());
    assert_eq!(fs::read(&file).unwrap(), flipped, "it was verified in the first round");
    store.discard("c").unwrap();
    wait_until("the damaged layer is gone", PATIENCE, || !layer_dirs(dir.path(), &two_layers(2))[0].exists());
    assert!(store.repair().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_removal_is_retried_later() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &two_layers(1), NAME).await;
    let blob = blob_file(dir.path(), &two_layers(1), 0);
    let mount = |program: &str, arguments: &[&str]| {
        let status = std::process::Command::new(program).args(arguments).arg(&blob).status().unwrap();
        assert!(status.success());
    };
    // A mount point cannot be removed.
    mount("mount", &["--bind", blob.to_str().unwrap()]);
    let removed = store.remove(NAME).await;
    let blob_exists = blob.exists();
    mount("umount", &[]);
    // The next round starts by itself, and may have removed the blob by now.
    assert!(removed.is_err() && store.list().is_empty() && blob_exists);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while blob.exists() && std::time::Instant::now() < end {
        store.repair().await.unwrap();
    }
    assert!(!blob.exists());
    assert_eq!(records(dir.path()), 0);
}

fn records(dir: &std::path::Path) -> usize {
    fs::read_dir(dir.join("content/records")).unwrap().count()
}
