//! Registries that are slow, stall, interrupt transfers or make false claims: a pull ends, and other pulls are not
//! affected.

mod node;

use std::{sync::Arc, time::Duration};

use image::{Digest, ErrorKind, Image, Registries, Store, TransferLimits};
use node::{
    Compression, Registry, Tar, TestImage, busybox,
    server::{Answer, Pace, Request, Server, content, from},
    tree,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// Generous, for machines under load.
const DEADLINE: Duration = Duration::from_secs(60);

fn store(dir: &std::path::Path, transfers: TransferLimits) -> Store {
    Store::open(dir, Registries { transfers, ..Registries::default() }).unwrap()
}

fn fast(window: u64) -> TransferLimits {
    TransferLimits { window: Duration::from_millis(window), ..TransferLimits::default() }
}

/// Returns bytes that do not compress.
fn noise(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

fn layers(count: u32) -> TestImage {
    (0..count).fold(TestImage::new(), |image, at| {
        let name = format!("f{at}");
        image.layer(Tar::new().file(&name, 0o644, &noise(at, 40_000)).done(), Compression::Gzip)
    })
}

/// Starts a server with this image, whose layers it sends at this pace.
async fn serving(image: TestImage, pace: impl Fn(&Request) -> Pace + Send + Sync + 'static) -> Server {
    let (config, content) = (format!("{}", Digest::of(&image.config())), content(&image, "1"));
    Server::start(move |request| {
        let answer = from(&content, request);
        match request.is_blob() && !request.path.ends_with(&config) {
            true => answer.pace(pace(request)),
            false => answer,
        }
    })
    .await
}

fn spawn(store: &Store, name: String) -> tokio::task::JoinHandle<Result<Image, image::Error>> {
    let store = store.clone();
    tokio::spawn(async move { store.pull(&name, None, None).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_layers_do_not_block_other_registries() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    // The window does not end during this test.
    let slow = serving(layers(12), |_| Pace::Trickle(Duration::from_millis(20))).await;
    let store = store(dir.path(), fast(600_000));
    let pulls: Vec<_> = ["a:1", "b:1", "c:1"].iter().map(|name| spawn(&store, slow.name(name))).collect();
    slow.sees(Request::is_blob).await;
    while slow.count(|request| request.is_blob() && request.headers.contains_key("range")) < 4
        && slow.count(Request::is_blob) < 5
    {
        sleep(Duration::from_millis(20)).await;
    }
    // Also more layers than permits to unpack.
    let mut honest = busybox();
    honest.layers.extend(layers(6).layers);
    registry.push("honest", "1", &honest).await;
    timeout(DEADLINE, store.pull(&registry.name("honest:1"), None, None)).await.expect("it hangs").unwrap();
    assert!(pulls.iter().all(|pull| !pull.is_finished()), "the slow pulls are still running");
    pulls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_or_stalled_layer_is_fetched_from_the_next_mirror() {
    let registry = Registry::start();
    let image = layers(1);
    registry.push("a", "1", &image).await;
    let layer = Digest::of(&image.layers[0].blob).to_string();
    let trickling = serving(image.clone(), |_| Pace::Trickle(Duration::from_millis(20))).await;
    let stalling = serving(image, |_| Pace::Stall(100)).await;
    let pull = async |mirror: &Server| {
        let dir = tempfile::tempdir().unwrap();
        let mirrors = vec![format!("http://{}", mirror.address), format!("http://{}", registry.address)];
        let mirrors = [("registry.example".to_owned(), mirrors)].into();
        let store =
            Store::open(dir.path(), Registries { mirrors, transfers: fast(300), ..Registries::default() }).unwrap();
        timeout(DEADLINE, store.pull("registry.example/a:1", None, None)).await.expect("it hangs").unwrap();
        assert_eq!(mirror.count(|request| request.path.ends_with(&layer)), 5);
    };
    tokio::join!(pull(&trickling), pull(&stalling));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_before_each_interruption_is_not_progress() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving(layers(1), |_| Pace::Break(1)).await;
    let store = store(dir.path(), TransferLimits::default());
    let start = std::time::Instant::now();
    let error = timeout(DEADLINE, store.pull(&server.name("a:1"), None, None)).await.expect("no end").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("interrupted at byte 5"), "{error}");
    assert!(start.elapsed() > Duration::from_millis(1800), "there are pauses: {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_without_callers_ends_after_the_grace_period() {
    let dir = tempfile::tempdir().unwrap();
    let (open, closed) = watch::channel(false);
    let server = serving(layers(2), move |_| Pace::Until(closed.clone())).await;
    let store = store(dir.path(), TransferLimits { grace: Duration::from_secs(3), ..TransferLimits::default() });
    let first = spawn(&store, server.name("a:1"));
    server.sees(Request::is_blob).await;
    first.abort();
    let _ = first.await;
    // A retry within the grace period attaches to the same pull.
    let second = spawn(&store, server.name("a:1"));
    sleep(Duration::from_secs(4)).await;
    open.send_replace(true);
    timeout(DEADLINE, second).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(server.count(|request| request.path.ends_with("manifests/1")), 1);
    // This time no caller retries.
    store.remove(&server.name("a:1")).await.unwrap();
    open.send_replace(false);
    let blobs = server.count(Request::is_blob);
    let third = spawn(&store, server.name("a:1"));
    while server.count(Request::is_blob) < blobs + 3 {
        sleep(Duration::from_millis(20)).await;
    }
    third.abort();
    for _ in 0..600 {
        if store.metrics().pulls_running.get() == 0 {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(store.metrics().pulls_running.get(), 0, "it still runs");
    node::until_deleted(dir.path());
    drop(store);
    let leftovers = tree(dir.path()).into_iter().filter(|path| path.contains("tmp/") || path.contains("sha256/"));
    assert_eq!(leftovers.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Returns an image whose configuration claims the layers of another image, but whose blobs differ.
fn claiming(honest: &TestImage) -> TestImage {
    let mut evil = honest.clone();
    for layer in &mut evil.layers {
        let other = TestImage::new().layer(Tar::new().file("evil", 0o644, &noise(9, 50_000)).done(), Compression::Gzip);
        layer.blob = other.layers[0].blob.clone();
    }
    evil
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_claim_about_layers_affects_only_its_own_pull() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let honest = layers(3);
    let evil = claiming(&honest);
    registry.push("honest", "1", &honest).await;
    let store = store(dir.path(), TransferLimits::default());
    // From a registry that stalls,
    let hanging = serving(evil.clone(), |_| Pace::Stall(1000)).await;
    let hangs = spawn(&store, hanging.name("evil:1"));
    hanging.sees(Request::is_blob).await;
    timeout(DEADLINE, store.pull(&registry.name("honest:1"), None, None)).await.expect("it hangs").unwrap();
    assert!(!hangs.is_finished());
    hangs.abort();
    store.remove(&registry.name("honest:1")).await.unwrap();
    // and at the same time from one that does not.
    registry.push("evil", "1", &evil).await;
    let (bad, good) = (spawn(&store, registry.name("evil:1")), spawn(&store, registry.name("honest:1")));
    let error = bad.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    good.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_refuses_affects_only_its_own_pull() {
    let dir = tempfile::tempdir().unwrap();
    let image = layers(2);
    let (config, content) = (format!("{}", Digest::of(&image.config())), Arc::new(content(&image, "1")));
    let (open, closed) = watch::channel(false);
    // One registry has the same blobs in two repositories, one of which refuses them after a while.
    let server = Server::start(move |request| {
        let is_layer = request.is_blob() && !request.path.ends_with(&config);
        match is_layer && request.path.contains("/evil/") {
            true => Answer { body: vec![0; 10], ..Answer::new(403) }.pace(Pace::Until(closed.clone())),
            false => from(&content, request),
        }
    })
    .await;
    let store = store(dir.path(), TransferLimits::default());
    let bad = spawn(&store, server.name("evil:1"));
    server.sees(|request| request.path.contains("/evil/") && request.is_blob()).await;
    let good = spawn(&store, server.name("good:1"));
    server.sees(|request| request.path.contains("/good/manifests/")).await;
    sleep(Duration::from_millis(300)).await;
    open.send_replace(true);
    timeout(DEADLINE, good).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(bad.await.unwrap().unwrap_err().kind, ErrorKind::Unauthorized);
}
