//! Images that are hidden until they are whole again, layers that could not be listed, and what a repair costs.

mod support;

use std::fs;

use image::Digest;
use support::{archive, blob_file, layer_dirs, load, open, tree, two_layers};

const NAME: &str = "localhost/a:1";
const OTHER: &str = "localhost/b:1";

/// A store whose image lost a layer, closed.
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
        assert!(store.list().is_empty(), "what was removed does not come back");
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
    // Another start forgets what only memory knows.
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
