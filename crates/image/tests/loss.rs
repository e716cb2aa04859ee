//! A failing disk, a missing index and a full disk must not lose images, names, or what a container uses.

mod node;

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use image::Store;
use node::{
    Registry, archive, blob_file as blob, flip, layer_dirs, load, open, set_meta, tree, two_layers as image,
    unclean_boot,
};
use testbed::this_test_under;

const STORE: &str = "IMAGE_TEST_STORE";
const ACTION: &str = "IMAGE_TEST_ACTION";
const NAME: &str = "localhost/a:1";
const GONE: &str = "localhost/gone:1";

/// Fills a store with an image that has a name, and one that only the snapshot of a container uses.
async fn filled(dir: &Path) -> Vec<PathBuf> {
    let store = open(dir);
    load(&store, &image(1), NAME).await;
    load(&store, &image(2), GONE).await;
    store.prepare("c", GONE).unwrap();
    store.remove(GONE).await.unwrap();
    fs::write(store.upper("c").join("written"), "by the container").unwrap();
    layer_dirs(dir, &image(2)).into_iter().chain(layer_dirs(dir, &image(1))).collect()
}

/// Asserts that the image with its name exists, and what the container uses.
fn assert_complete(store: &Store, layers: &[PathBuf], case: &str) {
    let image = store.find(NAME).unwrap().unwrap_or_else(|| panic!("{case}: the image is missing"));
    assert_eq!(image.repo_tags, [NAME], "{case}");
    for layer in layers {
        assert_eq!(fs::read_dir(layer.join("d")).map(Iterator::count).unwrap_or(0), 20, "{case}: {}", layer.display());
    }
    assert_eq!(store.snapshots(), ["c"], "{case}");
    assert!(store.upper("c").join("written").exists(), "{case}");
    let root = store.mount("c", false).unwrap();
    assert!(rustix::fs::statat(&root, "d/2-1-7", rustix::fs::AtFlags::empty()).is_ok(), "{case}");
}

/// Not a test: runs in its own process, under strace or in a mount namespace.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let (Ok(dir), Ok(action)) = (std::env::var(STORE), std::env::var(ACTION)) else { return };
    let dir = Path::new(&dir);
    match action.as_str() {
        "open" => drop(Store::open(dir, image::Registries::default())),
        "load" => {
            let store = open(dir);
            let mut failed = 0;
            for seed in 10..16 {
                let name = format!("localhost/load:{seed}");
                failed += u32::from(store.import(&mut &archive(&image(seed), &name)[..]).await.is_err());
            }
            assert!(failed <= 1, "{failed} of 6 failed after one error");
            for image in store.list() {
                store.remove(&image.id).await.unwrap();
            }
        }
        "full" => full(dir).await,
        "frozen" => frozen(dir),
        "reopen" => drop(open(dir)),
        "remove" => assert!(open(dir).remove(NAME).await.is_err(), "a layer could not be removed"),
        other => panic!("{other}"),
    }
}

fn run_child(wrapper: &[&str], dir: &Path, action: &str) {
    let output = this_test_under(wrapper, "child").env(STORE, dir).env(ACTION, action).output();
    let output =
        output.unwrap_or_else(|cause| panic!("{} is needed: apt install strace util-linux: {cause}", wrapper[0]));
    assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_disk_at_a_start_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let layers = filled(dir.path()).await;
    let root = dir.path().canonicalize().unwrap();
    let mut places: Vec<PathBuf> =
        layers.iter().map(|layer| root.join(layer.strip_prefix(dir.path()).unwrap())).collect();
    places.push(root.join("snapshots/c/record.json"));
    places.push(root.join("snapshots"));
    places.push(root.join("layers"));
    places.push(root.join("content/blobs/sha256"));
    places.push(root.join("index.redb"));
    for place in places {
        let path = place.to_str().unwrap();
        let inject = "inject=open,openat,openat2:error=EIO";
        run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-P", path, "-e", inject], dir.path(), "open");
        assert_complete(&open(dir.path()), &layers, path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_torn_index_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let layers = filled(dir.path()).await;
    let index = dir.path().join("index.redb");
    let good = fs::read(&index).unwrap();
    let mut cases: Vec<(String, Option<Vec<u8>>)> = vec![
        ("missing".into(), None),
        ("empty".into(), Some(Vec::new())),
        ("garbage".into(), Some(vec![0xa5; good.len()])),
        ("zeros".into(), Some(vec![0; good.len()])),
        ("directory".into(), None),
    ];
    for part in [1, 3, 7] {
        cases.push((format!("{part}/8"), Some(good[..good.len() * part / 8].to_vec())));
    }
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    for round in 0..8_usize {
        let mut torn = good.clone();
        (0..50).for_each(|n| torn[(round * 977 + n * 7919) % used] ^= 0x55);
        cases.push((format!("50 bytes changed, {round}"), Some(torn)));
    }
    for (case, bytes) in cases {
        let _ = fs::remove_file(&index);
        match bytes {
            Some(bytes) => fs::write(&index, bytes).unwrap(),
            None if case == "directory" => fs::create_dir(&index).unwrap(),
            None => {}
        }
        let outcome = Store::open(dir.path(), image::Registries::default());
        if case == "directory" {
            drop(outcome);
            let _ = fs::remove_dir(&index);
            continue;
        }
        assert_complete(&outcome.unwrap_or_else(|error| panic!("{case}: {error}")), &layers, &case);
        assert_complete(&open(dir.path()), &layers, &case);
    }
}

/// Creates an index that was never filled, as the end of a process during the rebuild leaves it.
fn create_empty_index(path: &Path) {
    let _ = fs::remove_file(path);
    let db = redb::Database::create(path).unwrap();
    let write = db.begin_write().unwrap();
    write.open_table(redb::TableDefinition::<&str, &str>::new("meta")).unwrap().insert("format", "2").unwrap();
    write.open_table(redb::TableDefinition::<&str, &str>::new("names")).unwrap();
    for table in ["images", "layers"] {
        write.open_table(redb::TableDefinition::<&str, &[u8]>::new(table)).unwrap();
    }
    write.commit().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_index_is_rebuilt_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let layers = filled(dir.path()).await;
    create_empty_index(&dir.path().join("index.redb"));
    for opening in ["the first opening", "the second opening"] {
        assert_complete(&open(dir.path()), &layers, opening);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_index_that_cannot_be_written_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let layers = filled(dir.path()).await;
    for call in 1..=12 {
        fs::remove_file(dir.path().join("index.redb")).unwrap();
        let inject = format!("inject=fdatasync:error=ENOSPC:when={call}+");
        run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject], dir.path(), "open");
        assert_complete(&open(dir.path()), &layers, &format!("failed from call {call} on"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_while_the_index_is_rebuilt_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let layers = filled(dir.path()).await;
    let records = dir.path().canonicalize().unwrap().join("content/records");
    let mut places: Vec<PathBuf> = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path()).collect();
    places.push(records);
    for place in places {
        fs::remove_file(dir.path().join("index.redb")).unwrap();
        let path = place.to_str().unwrap();
        let inject = "inject=open,openat,openat2:error=EIO:when=1";
        run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-P", path, "-e", inject], dir.path(), "open");
        for _ in 0..2 {
            assert_complete(&open(dir.path()), &layers, path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_found_without_index_and_records() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = load(&store, &image(1), NAME).await.id;
    drop(store);
    fs::remove_file(dir.path().join("index.redb")).unwrap();
    fs::remove_dir_all(dir.path().join("content/records")).unwrap();
    let store = open(dir.path());
    assert!(store.find(&id).unwrap().is_some(), "listed by its id");
    store.prepare("c", &id).unwrap();
    store.mount("c", false).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_layer_is_unpacked_again_without_a_registry() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &image(1), NAME).await;
    drop(store);
    let layers = layer_dirs(dir.path(), &image(1));
    for _ in 0..2 {
        fs::remove_dir_all(&layers[0]).unwrap();
        // A second start before the layer was unpacked again loses nothing.
        drop(open(dir.path()));
        let store = open(dir.path());
        assert!(store.find(NAME).unwrap().is_none(), "an image without a layer is hidden");
        assert!(store.repair().await.unwrap());
        assert_eq!(store.find(NAME).unwrap().unwrap().repo_tags, [NAME]);
        assert_eq!(fs::read_dir(layers[0].join("d")).unwrap().count(), 20);
        store.prepare("c", NAME).unwrap();
        store.mount("c", false).unwrap();
        store.discard("c").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_layer_with_a_damaged_blob_is_fetched_again() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    registry.push("t", "1", &image(1)).await;
    let name = registry.name("t:1");
    let store = open(dir.path());
    store.pull(&name, None, None).await.unwrap();
    drop(store);
    let layers = layer_dirs(dir.path(), &image(1));
    fs::remove_dir_all(&layers[1]).unwrap();
    let blob = blob(dir.path(), &image(1), 1);
    let bytes = fs::read(&blob).unwrap();
    fs::write(&blob, vec![7; bytes.len()]).unwrap();
    let store = open(dir.path());
    store.pull(&name, None, None).await.unwrap();
    assert_eq!(fs::read(&blob).unwrap(), bytes);
    assert_eq!(fs::read_dir(layers[1].join("d")).unwrap().count(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_equal_length_is_detected_after_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &image(1), NAME).await;
    drop(store);
    let layers = layer_dirs(dir.path(), &image(1));
    let file = layers[1].join("d/1-2-3");
    let good = fs::read(&file).unwrap();
    flip(&file);
    unclean_boot(dir.path());
    let store = open(dir.path());
    assert!(store.find(NAME).unwrap().is_some(), "the start reads no layer");
    assert!(store.repair().await.unwrap());
    assert_eq!(fs::read(&file).unwrap(), good);
    drop(store);
    // What was not verified before the store was closed is verified after the next start.
    flip(&file);
    set_meta(dir.path(), &[("verify", "yes")]);
    let store = open(dir.path());
    assert!(store.repair().await.unwrap());
    assert_eq!(fs::read(&file).unwrap(), good);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_cannot_be_removed_does_not_prevent_the_removal_of_others() {
    let dir = tempfile::tempdir().unwrap();
    drop(load(&open(dir.path()), &image(1), NAME).await);
    let mut layers = layer_dirs(&dir.path().canonicalize().unwrap(), &image(1));
    layers.sort();
    // Without the reserve there is only one attempt.
    fs::remove_file(dir.path().join("reserve")).unwrap();
    let path = layers[0].to_str().unwrap();
    let inject = "inject=renameat2:error=EIO";
    run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-P", path, "-e", inject], dir.path(), "remove");
    assert!(layers[0].exists() && !layers[1].exists());
    drop(open(dir.path()));
    assert!(!layers[0].exists(), "the next start removes it");
}

#[test]
fn one_failed_sync_of_the_index_is_survived() {
    for call in [3, 9, 14] {
        let dir = tempfile::tempdir().unwrap();
        let inject = format!("inject=fdatasync:error=EIO:when={call}");
        run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject], dir.path(), "load");
    }
}

#[test]
fn a_full_disk_can_be_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let script = format!("mount -t tmpfs -o size=192m none {path} && exec \"$@\"");
    run_child(&["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"], dir.path(), "full");
    assert_eq!(tree(dir.path()), Vec::<String>::new());
}

#[test]
fn a_disk_that_hangs_does_not_prevent_closing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let script = format!(
        "truncate -s 64M {path}/disk && mkfs.ext4 -q {path}/disk && mkdir {path}/mounted \
         && mount -o loop {path}/disk {path}/mounted && exec \"$@\""
    );
    run_child(&["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"], dir.path(), "frozen");
}

/// Runs with its own empty file system at `dir/mounted`.
fn frozen(dir: &Path) {
    let mounted = dir.join("mounted");
    let store = open(&mounted.join("store"));
    let freeze = |option| Command::new("fsfreeze").arg(option).arg(&mounted).status().unwrap();
    assert!(freeze("--freeze").success(), "fsfreeze is needed: apt install util-linux");
    let (start, path) = (std::time::Instant::now(), mounted.clone());
    let thaw = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(12));
        Command::new("fsfreeze").arg("--unfreeze").arg(path).status().unwrap()
    });
    drop(store);
    let took = start.elapsed();
    thaw.join().unwrap();
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn the_mode_of_a_read_only_store_is_not_set_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let inject = "inject=chmod,fchmodat:error=EROFS";
    run_child(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject], dir.path(), "reopen");
}

/// Runs with an empty tmpfs of 192 MiB at `dir`.
async fn full(dir: &Path) {
    let store = open(&dir.join("store"));
    load(&store, &image(1), NAME).await;
    load(&store, &image(2), GONE).await;
    // Down to the last byte.
    let filler = fs::File::create(dir.join("filler")).unwrap();
    let mut offset = 0;
    for size in [1 << 20, 4096, 1] {
        while filler.write_all_at(&vec![1; size], offset).is_ok() {
            offset += size as u64;
        }
    }
    assert!(store.import(&mut &archive(&image(3), "localhost/c:1")[..]).await.is_err(), "the disk is full");
    drop(store);
    let store = open(&dir.join("store"));
    assert!(store.find(NAME).unwrap().is_some(), "a full disk does not prevent opening the store");
    store.remove(NAME).await.unwrap();
    for layer in layer_dirs(&dir.join("store"), &image(1)) {
        assert!(!layer.exists(), "the layers are removed");
    }
    assert!(!blob(&dir.join("store"), &image(1), 0).exists(), "the blobs are removed");
    fs::remove_file(dir.join("filler")).unwrap();
    load(&store, &image(3), "localhost/c:1").await;
    assert!(store.find(GONE).unwrap().is_some());
}
