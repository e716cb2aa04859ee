//! Pulls from a real registry.

mod node;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use image::{Digest, ErrorKind, LayerProgress, Registries, Stage, Store};
use node::{Compression, Registry, Tar, TestImage, busybox, open, tree};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_every_compression() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let image = busybox()
        .layer(Tar::new().file("gzip", 0o644, &[1; 70_000]).done(), Compression::Gzip)
        .layer(Tar::new().file("zstd", 0o644, &[2; 70_000]).done(), Compression::Zstd)
        .layer(Tar::new().file("none", 0o644, b"none").done(), Compression::None);
    let (manifest, id) = registry.push("a/b", "1", &image).await;
    let store = open(dir.path());
    let name = registry.name("a/b:1");
    let seen: Arc<Mutex<Vec<LayerProgress>>> = Arc::default();
    let recorded = seen.clone();
    let pulled = store.pull(&name, None, Some(Arc::new(move |p| recorded.lock().unwrap().push(p)))).await.unwrap();
    assert_eq!(pulled.id, id.as_str());
    assert_eq!(pulled.repo_tags, std::slice::from_ref(&name));
    assert_eq!(pulled.repo_digests, [format!("{}@{manifest}", registry.name("a/b"))]);
    assert_eq!((pulled.config.env.as_slice(), pulled.config.user.as_str()), (&["A=b".to_owned()][..], "1000"));
    let done = seen.lock().unwrap().iter().filter(|p| p.stage == Stage::Done && p.done == p.total).count();
    assert_eq!(done, 4, "each layer ends once");

    for text in [name.as_str(), &pulled.id, &pulled.id[7..], &pulled.id[7..15], &pulled.repo_digests[0]] {
        assert_eq!(store.find(text).unwrap().map(|image| image.id), Some(pulled.id.clone()), "{text}");
    }
    assert!(store.find("No Name").is_err() && store.find("nothing").unwrap().is_none());
    assert!(store.usage().bytes > 700_000);
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.list().len(), 1, "it is listed after a restart");
    store.remove(&name).await.unwrap();
    store.remove(&name).await.unwrap();
    drop(store);
    let leftovers: Vec<_> =
        tree(dir.path()).into_iter().filter(|path| path.contains("sha256/") || path.contains("layers/")).collect();
    assert_eq!(leftovers, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_resolves_to_the_image_for_this_machine() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let host = busybox();
    let other = TestImage { architecture: "s390x".into(), ..host.clone() };
    let (host_manifest, id) = registry.push("multi", "host", &host).await;
    let (other_manifest, _) = registry.push("multi", "other", &other).await;
    let entry = |digest: &Digest, image: &TestImage| {
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest,
            "size": serde_json::to_vec(&image.manifest()).unwrap().len(),
            "platform": {"architecture": image.architecture, "os": "linux"}})
    };
    let index = |entries: Vec<serde_json::Value>| json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries});
    let both = index(vec![entry(&other_manifest, &other), entry(&host_manifest, &host)]);
    let digest = registry.push_manifest("multi", "both", &both).await;
    registry.push_manifest("multi", "foreign", &index(vec![entry(&other_manifest, &other)])).await;

    let store = open(dir.path());
    let image = store.pull(&registry.name("multi:both"), None, None).await.unwrap();
    assert_eq!(image.id, id.as_str());
    assert_eq!(
        image.repo_digests,
        [format!("{}@{digest}", registry.name("multi"))],
        "the digest of the index, as in other engines"
    );
    let by_digest = store.pull(&image.repo_digests[0], None, None).await.unwrap();
    assert_eq!(by_digest.id, image.id);
    for tag in ["foreign", "other"] {
        let error = store.pull(&registry.name(&format!("multi:{tag}")), None, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains("it has linux/s390x only"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_tried_first_and_the_name_stays() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let (manifest, _) = registry.push("library/bb", "latest", &busybox()).await;
    let mut registries = Registries::default();
    let mirrors = vec!["127.0.0.1:1".to_owned(), format!("http://{}", registry.address)];
    registries.mirrors.insert("docker.io".into(), mirrors);
    let store = Store::open(dir.path(), registries).unwrap();
    let image = store.pull("bb", None, None).await.unwrap();
    assert_eq!(image.repo_tags, ["docker.io/library/bb:latest"]);
    assert_eq!(image.repo_digests, [format!("docker.io/library/bb@{manifest}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_object_and_cause() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let image = busybox().layer(Tar::new().file("x", 0o644, &[7; 300_000]).done(), Compression::None);
    registry.push("a", "1", &image).await;
    let blob = Digest::of(&image.layers[1].blob);
    let mut bytes = image.layers[1].blob.clone();
    bytes[200_000] ^= 1;
    std::fs::write(registry.blob_file(&blob), &bytes).unwrap();
    let store = open(dir.path());

    let error = store.pull(&registry.name("nope:1"), None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let address = &registry.address;
    let expected = format!("pull image {address}/nope:1: manifest not found at registry {address}; check name and tag");
    assert_eq!(error.message, expected);

    let error = store.pull("127.0.0.1:1/a:1", None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("127.0.0.1:1") && error.message.contains("Connection refused"), "{error}");

    let error = store.pull(&registry.name("a:1"), None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    assert!(error.message.contains(&format!("layer {blob}")), "{error}");
    assert!(error.message.contains("got sha256:") && error.message.contains(&format!("want {blob}")), "{error}");

    assert_eq!(store.pull("UPPER/Case", None, None).await.unwrap_err().kind, ErrorKind::Invalid);
    assert!(store.list().is_empty());
    node::until_deleted(dir.path());
    drop(store);
    let leftovers: Vec<_> =
        tree(dir.path()).into_iter().filter(|path| path.contains("sha256/") || path.contains("tmp/")).collect();
    assert_eq!(leftovers, Vec::<String>::new(), "nothing is left over");
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_one_image_are_single_flight() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let image = busybox().layer(Tar::new().file("big", 0o644, &vec![3; 8 << 20]).done(), Compression::Gzip);
    registry.push("a", "1", &image).await;
    registry.push("b", "1", &image).await;
    let store = open(dir.path());
    let downloads = Arc::new(AtomicUsize::new(0));
    let mut pulls = Vec::new();
    for at in 0..12 {
        let name = registry.name(if at % 2 == 0 { "a:1" } else { "b:1" });
        let (store, downloads) = (store.clone(), downloads.clone());
        pulls.push(tokio::spawn(async move {
            let first = at == 0;
            let progress = move |p: LayerProgress| {
                if first && p.stage == Stage::Done {
                    downloads.fetch_add(1, Ordering::Relaxed);
                }
            };
            store.pull(&name, None, Some(Arc::new(progress))).await.unwrap().id
        }));
    }
    let mut ids = std::collections::HashSet::new();
    for pull in pulls {
        ids.insert(pull.await.unwrap());
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(downloads.load(Ordering::Relaxed), 2);
    let image = store.list().remove(0);
    assert_eq!((image.repo_tags.len(), image.repo_digests.len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moved_leaves_the_old_image_without_it() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    registry.push("a", "1", &busybox()).await;
    let old = store.pull(&registry.name("a:1"), None, None).await.unwrap();
    let new = busybox().layer(Tar::new().file("x", 0o644, b"x").done(), Compression::Gzip);
    registry.push("a", "1", &new).await;
    let new = store.pull(&registry.name("a:1"), None, None).await.unwrap();
    assert_ne!(old.id, new.id);
    let old = store.find(&old.id).unwrap().unwrap();
    assert!(old.repo_tags.is_empty() && old.repo_digests.len() == 1);
    store.remove(&old.id).await.unwrap();
    assert!(store.find(&new.id).unwrap().is_some());
    store.prepare("k", &new.id).unwrap();
    store.mount("k", false).unwrap();
}

/// Forwards connections to `upstream`, and interrupts each after `most` bytes of responses. Counts these bytes.
async fn interrupting_proxy(upstream: String, most: u64, passed: Arc<AtomicUsize>) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (upstream, passed) = (upstream.clone(), passed.clone());
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (from_server, mut to_server) = tokio::net::TcpStream::connect(upstream).await.unwrap().into_split();
                let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let count = tokio::io::copy(&mut from_server.take(most), &mut to_client).await.unwrap_or(0);
                passed.fetch_add(count as usize, Ordering::Relaxed);
                let _ = to_client.shutdown().await;
                requests.abort();
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_is_resumed() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let image = TestImage::new().layer(Tar::new().file("big", 0o644, &body).done(), Compression::None);
    registry.push("a", "1", &image).await;
    let passed = Arc::new(AtomicUsize::new(0));
    let proxy = interrupting_proxy(registry.address.clone(), 500_000, passed.clone()).await;
    let store = open(dir.path());
    store.pull(&format!("{proxy}/a:1"), None, None).await.unwrap();
    let passed = passed.load(Ordering::Relaxed);
    assert!(passed < 6_000_000, "{passed} bytes for a layer of 3 MB: it was downloaded from the start again");
}
