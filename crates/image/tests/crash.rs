//! Kills in the middle of a pull, and power cuts.

mod node;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use image::{Digest, LayerProgress, Stage, Store};
use node::{Compression, Registry, Tar, TestImage, open, set_meta, tree, unclean_boot};
use testbed::this_test;

const STORE: &str = "IMAGE_TEST_STORE";
const NAME: &str = "IMAGE_TEST_NAME";

/// Not a test: the process that the tests kill. It prints each stage on a line.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let (Ok(dir), Ok(name)) = (std::env::var(STORE), std::env::var(NAME)) else { return };
    let store = open(Path::new(&dir));
    let print = |p: LayerProgress| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{:?}", p.stage).and_then(|()| out.flush());
    };
    store.pull(&name, None, Some(Arc::new(print))).await.unwrap();
    println!("Pulled");
    std::future::pending::<()>().await;
}

/// Starts the victim and kills it when it has printed `stage` for the `count`th time.
fn kill_at(dir: &Path, name: &str, stage: &str, count: usize) {
    let mut child = this_test("victim").env(STORE, dir).env(NAME, name).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let seen = lines.filter(|line| line.ends_with(stage)).take(count).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, count, "the victim ended before it printed {stage} {count} times");
}

fn image() -> TestImage {
    let mut image = TestImage::new();
    for layer in 0..3_u8 {
        let mut tar = Tar::new().dir("d", 0o755);
        for file in 0..400 {
            tar = tar.file(&format!("d/{layer}-{file}"), 0o644, &[layer; 5000]);
        }
        image = image.layer(tar.done(), Compression::Gzip);
    }
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_stage() {
    let registry = Registry::start();
    registry.push("t", "1", &image()).await;
    let name = registry.name("t:1");
    for (stage, count) in [
        ("Waiting", 1),
        ("Downloading", 1),
        ("Unpacking", 1),
        ("Unpacking", 3),
        ("Done", 1),
        ("Done", 3),
        ("Pulled", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        kill_at(dir.path(), &name, stage, count);
        let store = open(dir.path());
        let listed = store.list().len();
        assert!(stage != "Pulled" || listed == 1, "an image that was reported as pulled is listed");
        let pulled = store.pull(&name, None, None).await.unwrap();
        store.prepare("c", &pulled.id).unwrap();
        let root = store.mount("c", false).unwrap();
        let stat = rustix::fs::statat(&root, "d/2-399", rustix::fs::AtFlags::empty()).unwrap();
        assert_eq!(stat.st_size, 5000);
        node::until_deleted(dir.path());
        drop((root, store));
        let leftovers: Vec<_> = tree(dir.path()).into_iter().filter(|path| path.starts_with("tmp/")).collect();
        assert_eq!(leftovers, Vec::<String>::new(), "{stage} {count}");
        let layers = std::fs::read_dir(dir.path().join("layers")).unwrap().count();
        assert_eq!(layers, 3, "{stage} {count}");
    }
}

/// Changes the boot id of the last opening in the index.
fn another_boot(dir: &Path) {
    set_meta(dir, &[("boot", "another")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_cut_only_a_damaged_layer_is_fetched_again() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let image = image();
    registry.push("t", "1", &image).await;
    let name = registry.name("t:1");
    kill_at(dir.path(), &name, "Pulled", 1);
    let first = Digest::of(&image.layers[0].tar);
    let second = Digest::chain(Some(&first), &Digest::of(&image.layers[1].tar));
    let torn = dir.path().join("layers").join(second.hex()).join("d/1-7");
    std::fs::File::options().write(true).open(&torn).unwrap().set_len(0).unwrap();
    another_boot(dir.path());

    let store = open(dir.path());
    assert!(store.repair().await.unwrap(), "everything is repaired");
    assert!(store.find(&name).unwrap().is_some(), "its blob is intact: no registry is needed");
    assert_eq!(std::fs::read(&torn).unwrap(), [1; 5000]);
    drop(store);

    // The layer and its blob, both of the same length as before.
    std::fs::write(&torn, [9; 5000]).unwrap();
    let blob = dir.path().join("content/blobs/sha256").join(Digest::of(&image.layers[1].blob).hex());
    std::fs::write(&blob, vec![9; image.layers[1].blob.len()]).unwrap();
    unclean_boot(dir.path());
    let store = open(dir.path());
    assert!(!store.repair().await.unwrap());
    assert!(store.find(&name).unwrap().is_none(), "an image with a damaged layer is hidden");
    let seen: Arc<Mutex<Vec<(String, Stage)>>> = Arc::default();
    let recorded = seen.clone();
    let progress = move |p: LayerProgress| recorded.lock().unwrap().push((p.digest, p.stage));
    store.pull(&name, None, Some(Arc::new(progress))).await.unwrap();
    assert_eq!(std::fs::read(&torn).unwrap(), [1; 5000]);
    let seen = seen.lock().unwrap();
    for (at, layer) in image.layers.iter().enumerate() {
        let end = if at == 1 { Stage::Done } else { Stage::Exists };
        let blob = Digest::of(&layer.blob).to_string();
        assert!(seen.contains(&(blob, end)), "layer {at} must end with {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_do_not_survive_a_boot_and_a_closed_store_is_trusted() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    registry.push("t", "1", &image()).await;
    let name = registry.name("t:1");
    let store = open(dir.path());
    store.pull(&name, None, None).await.unwrap();
    store.prepare("c", &name).unwrap();
    let second = Store::open(dir.path(), image::Registries::default()).err().unwrap();
    assert!(second.message.contains("another process"), "{second}");
    drop(store);
    another_boot(dir.path());
    assert_eq!(
        open(dir.path()).snapshots(),
        ["c"],
        "the boot id in its record takes precedence over that in the index"
    );
    another_boot(dir.path());
    let record = dir.path().join("snapshots/c/record.json");
    let mut text: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    text["boot"] = "another".into();
    std::fs::write(&record, text.to_string()).unwrap();
    let store = open(dir.path());
    assert!(store.snapshots().is_empty() && store.find(&name).unwrap().is_some());
}
