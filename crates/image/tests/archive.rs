//! Import and export.

mod node;

use std::process::Command;

use image::ErrorKind;
use node::{Compression, Registry, Tar, TestImage, busybox, open, tree};

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_image_can_be_imported() {
    let (registry, dir, other) = (Registry::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = busybox().layer(Tar::new().file("x", 0o644, b"x").done(), Compression::Zstd);
    let (manifest, _) = registry.push("a", "1", &image).await;
    let store = open(dir.path());
    let name = registry.name("a:1");
    let pulled = store.pull(&name, None, None).await.unwrap();
    let mut archive = Vec::new();
    store.export(std::slice::from_ref(&name), &mut archive).await.unwrap();
    let missing = store.export(&["nope".into()], &mut Vec::new()).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);

    let zipped = zstd::encode_all(&archive[..], 1).unwrap();
    for bytes in [&archive, &zipped] {
        let target = tempfile::tempdir().unwrap();
        let store = open(target.path());
        let images = store.import(&mut &bytes[..]).await.unwrap();
        assert_eq!((images.len(), &images[0].tags), (1, &vec![name.clone()]));
        let images: Vec<_> = images.into_iter().map(|imported| imported.image).collect();
        assert_eq!((&images[0].id, &images[0].repo_tags), (&pulled.id, &vec![name.clone()]));
        assert_eq!(images[0].repo_digests, [format!("{}@{manifest}", registry.name("a"))]);
        store.prepare("c", &name).unwrap();
        store.mount("c", false).unwrap();
    }
    // An OCI layout in a directory.
    let file = other.path().join("image.tar");
    std::fs::write(&file, &archive).unwrap();
    let layout = other.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    assert!(Command::new("tar").arg("xf").arg(&file).arg("-C").arg(&layout).status().unwrap().success());
    let store = open(&other.path().join("store"));
    assert_eq!(store.import_directory(&layout).await.unwrap()[0].image.id, pulled.id);
}

/// A docker archive as `docker save` wrote it before it supported OCI: a directory per layer, links between equal
/// layers.
fn docker_archive(image: &TestImage, tags: &str) -> Vec<u8> {
    let config = image.config();
    let manifest =
        format!(r#"[{{"Config":"config.json","RepoTags":{tags},"Layers":["l0/layer.tar","l1/layer.tar"]}}]"#);
    Tar::new()
        .dir("l0/", 0o755)
        .file("l0/layer.tar", 0o644, &image.layers[0].tar)
        .symlink("l1/layer.tar", "../l0/layer.tar")
        .file("config.json", 0o644, &config)
        .file("manifest.json", 0o644, manifest.as_bytes())
        .done()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_docker_archive_with_and_without_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let layer = Tar::new().file("x", 0o644, b"x").done();
    let image = TestImage::new().layer(layer.clone(), Compression::None).layer(layer, Compression::None);
    let store = open(dir.path());
    let images = store.import(&mut &docker_archive(&image, "null")[..]).await.unwrap();
    let image_without = &images[0].image;
    assert!(image_without.repo_tags.is_empty() && image_without.repo_digests.is_empty() && images[0].tags.is_empty());
    assert!(store.find(&image_without.id).unwrap().is_some());
    let images = store.import(&mut &docker_archive(&image, r#"["busybox:1"]"#)[..]).await.unwrap();
    assert_eq!(images[0].tags, ["docker.io/library/busybox:1"]);
    let images = store.import(&mut &docker_archive(&image, r#"["busybox:2","busybox:3"]"#)[..]).await.unwrap();
    assert_eq!(
        images[0].tags,
        ["docker.io/library/busybox:2", "docker.io/library/busybox:3"],
        "only those in this archive"
    );
    let images = store.import(&mut &docker_archive(&image, "null")[..]).await.unwrap();
    assert_eq!((images[0].tags.len(), images[0].image.repo_tags.len()), (0, 3));
    assert_eq!(store.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_archive_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = TestImage::new().layer(Tar::new().done(), Compression::None);
    let broken = Tar::new().file("manifest.json", 0o644, b"{not json").done();
    let absent = Tar::new().file("manifest.json", 0o644, br#"[{"Config":"c","Layers":[]}]"#).done();
    let outside = Tar::new().file("manifest.json", 0o644, br#"[{"Config":"../../../etc/passwd","Layers":[]}]"#).done();
    let cut = docker_archive(&image, "null")[..2000].to_vec();
    for (case, bytes) in [
        ("empty", Vec::new()),
        ("text", b"hello".repeat(200)),
        ("json", broken),
        ("absent", absent),
        ("out", outside),
        ("cut", cut),
    ] {
        let store = open(dir.path());
        let error = store.import(&mut &bytes[..]).await.expect_err(case);
        assert!(error.message.starts_with("import archive: ") && error.kind != ErrorKind::System, "{case}: {error:?}");
        assert_eq!(error.message.contains("not an archive"), case == "text", "{case}: {error:?}");
        node::until_deleted(dir.path());
        drop(store);
        let leftovers: Vec<_> =
            tree(dir.path()).into_iter().filter(|p| p.contains("sha256/") || p.contains("tmp/")).collect();
        assert_eq!(leftovers, Vec::<String>::new(), "{case}");
    }
}
