//! Writable layers, whiteouts and mounts, on the real overlayfs.

mod node;

use image::{Digest, ErrorKind, MountOptions};
use node::{Compression, PATIENCE, Registry, Tar, TestImage, open, tree};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags},
};
use testbed::wait_until;

fn read(root: &OwnedFd, path: &str) -> Option<Vec<u8>> {
    let fd = rustix::fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; 100];
    let count = rustix::io::read(&fd, &mut bytes).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

fn write(root: &OwnedFd, path: &str) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root, path, flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&fd, b"new").map(drop)
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_whiteouts_and_writes() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let base = Tar::new()
        .dir("./", 0o750)
        .file("keep", 0o644, b"keep")
        .file("gone", 0o644, b"gone")
        .dir("opaque", 0o755)
        .file("opaque/old", 0o644, b"old")
        .dir("again", 0o755)
        .file("again/old", 0o644, b"old")
        .dir("tree", 0o755)
        .file("tree/x", 0o644, b"x");
    let upper = Tar::new()
        .file(".wh.gone", 0o644, b"")
        .file("opaque/new", 0o644, b"new")
        .file("opaque/.wh..wh..opq", 0o644, b"")
        .file(".wh.again", 0o644, b"")
        .dir("again", 0o755)
        .file("again/new", 0o644, b"new")
        .file(".wh.tree", 0o644, b"")
        .file(".wh..wh.plnk", 0o644, b"")
        .file("both", 0o644, b"both")
        .file(".wh.both", 0o644, b"");
    let image = TestImage::new().layer(base.done(), Compression::Gzip).layer(upper.done(), Compression::Gzip);
    registry.push("t", "1", &image).await;
    let store = open(dir.path());
    let image = store.pull(&registry.name("t:1"), None, None).await.unwrap();
    let before = mounts();
    store.prepare("c1", &image.id).unwrap();
    store.prepare("c1", &image.id).unwrap();
    assert_eq!(store.prepare("../c1", &image.id).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(store.prepare("c2", "none").unwrap_err().kind, ErrorKind::NotFound);
    let root = store.mount("c1", false).unwrap();
    assert_eq!(mounts(), before, "not attached");

    assert_eq!(read(&root, "keep").unwrap(), b"keep");
    assert_eq!(read(&root, "both").unwrap(), b"both", "a whiteout applies to lower layers only");
    for hidden in ["gone", "opaque/old", "again/old", "tree/x", "tree", ".wh.gone", "opaque/.wh..wh..opq"] {
        assert_eq!(read(&root, hidden), None, "{hidden}");
    }
    assert_eq!(
        (read(&root, "opaque/new").unwrap(), read(&root, "again/new").unwrap()),
        (b"new".to_vec(), b"new".to_vec())
    );
    let stat = rustix::fs::statat(&root, c"", AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(stat.st_mode & 0o7777, 0o750, "the root's mode is the image's");
    write(&root, "keep").unwrap();
    assert_eq!(std::fs::read(store.upper("c1").join("keep")).unwrap(), b"new");
    drop(root);

    let readonly = store.mount("c1", true).unwrap();
    assert_eq!(read(&readonly, "keep").unwrap(), b"new", "mounted a second time");
    assert_eq!(write(&readonly, "keep").unwrap_err(), rustix::io::Errno::ROFS);
    drop(readonly);
    store.discard("c1").unwrap();
    store.discard("c1").unwrap();
    let error = store.mount("c1", false).unwrap_err();
    assert!(error.kind == ErrorKind::NotFound && error.message.contains("c1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_layers_and_no_layers() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let mut image = TestImage::new();
    for at in 0..120 {
        image =
            image.layer(Tar::new().file(&format!("f{at}"), 0o644, at.to_string().as_bytes()).done(), Compression::None);
    }
    registry.push("many", "1", &image).await;
    registry.push("none", "1", &TestImage::new()).await;
    let store = open(dir.path());
    store.pull(&registry.name("many:1"), None, None).await.unwrap();
    store.pull(&registry.name("none:1"), None, None).await.unwrap();
    store.prepare("many", &registry.name("many:1")).unwrap();
    store.prepare("none", &registry.name("none:1")).unwrap();
    let root = store.mount("many", false).unwrap();
    assert_eq!((read(&root, "f0").unwrap(), read(&root, "f119").unwrap()), (b"0".to_vec(), b"119".to_vec()));
    let root = store.mount("none", false).unwrap();
    write(&root, "x").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layers_of_a_snapshot_outlive_the_image() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let tar = Tar::new().file("a", 0o644, b"a").done();
    let layer = dir.path().join("layers").join(Digest::of(&tar).hex());
    registry.push("t", "1", &TestImage::new().layer(tar, Compression::Gzip)).await;
    let store = open(dir.path());
    let name = registry.name("t:1");
    store.pull(&name, None, None).await.unwrap();
    store.prepare("c", &name).unwrap();
    store.remove(&name).await.unwrap();
    assert!(layer.exists() && store.list().is_empty());
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.snapshots(), ["c"]);
    assert_eq!(read(&store.mount("c", false).unwrap(), "a").unwrap(), b"a");
    store.discard("c").unwrap();
    wait_until("the layer is freed", PATIENCE, || !layer.exists());
    node::until_deleted(dir.path());
    drop(store);
    let leftovers: Vec<_> =
        tree(dir.path()).into_iter().filter(|path| path.contains('/') && !path.contains("oci-layout")).collect();
    assert_eq!(leftovers, ["content/blobs", "content/blobs/sha256", "content/records"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_layer_is_named() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let tars = [Tar::new().file("a", 0o644, b"a").done(), Tar::new().file("b", 0o644, b"b").done()];
    let lower = dir.path().join("layers").join(Digest::of(&tars[0]).hex());
    let image = tars.iter().fold(TestImage::new(), |image, tar| image.layer(tar.clone(), Compression::Gzip));
    registry.push("t", "1", &image).await;
    let (name, store) = (registry.name("t:1"), open(dir.path()));
    store.pull(&name, None, None).await.unwrap();
    store.prepare("c", &name).unwrap();
    std::fs::remove_dir_all(&lower).unwrap();
    let error = store.mount("c", false).unwrap_err().message;
    assert!(
        error.contains("snapshot c")
            && error.contains(lower.to_str().unwrap())
            && error.ends_with("pull the image again"),
        "{error}"
    );
    drop(store);
    // Only this layer is fetched again.
    let store = open(dir.path());
    assert!(store.find(&name).unwrap().is_none());
    store.pull(&name, None, None).await.unwrap();
    assert_eq!(read(&store.mount("c", false).unwrap(), "a").unwrap(), b"a");
}

const FIRST: u32 = 655_360;

fn id_map() -> image::IdMap {
    use std::io::{BufRead, BufReader};
    // A process in a new user namespace, which waits until its maps were written.
    let mut child = std::process::Command::new("unshare")
        .args(["--user", "--", "sh", "-c", "echo in; read gone"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{file}", child.id()), format!("0 {FIRST} 65536")).unwrap();
    }
    let user_namespace = std::fs::File::open(format!("/proc/{}/ns/user", child.id())).unwrap().into();
    drop(child.stdin.take());
    child.wait().unwrap();
    let range = oci::IdMapping { container_id: 0, host_id: FIRST, size: 65536 };
    image::IdMap { user_namespace, uids: vec![range], gids: vec![range] }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_mapped_for_a_user_namespace() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let base = Tar::new().owned("a", 0o644, (0, 0), b"a").owned("b", 0o600, (33, 44), b"b");
    let upper = Tar::new().dir("./", 0o755).owned("c", 0o644, (70_000, 0), b"c");
    let image = TestImage::new().layer(base.done(), Compression::Gzip).layer(upper.done(), Compression::Gzip);
    registry.push("t", "1", &image).await;
    let store = open(dir.path());
    let image = store.pull(&registry.name("t:1"), None, None).await.unwrap();
    let (before, map) = (mounts(), id_map());
    let options = MountOptions { map: Some(&map), label: None };
    store.probe_id_map(&map).unwrap();
    store.prepare_mapped("mapped", &image.id, Some(&map)).unwrap();
    store.prepare("plain", &image.id).unwrap();
    let root = store.mount_with("mapped", false, &options).unwrap();
    assert_eq!(mounts(), before, "not attached");
    let owner = |root: &OwnedFd, path: &str| {
        let stat = rustix::fs::statat(root, path, AtFlags::EMPTY_PATH).unwrap();
        (stat.st_uid, stat.st_gid)
    };
    assert_eq!(owner(&root, ""), (FIRST, FIRST));
    assert_eq!((owner(&root, "a"), owner(&root, "b")), ((FIRST, FIRST), (FIRST + 33, FIRST + 44)));
    assert_eq!(owner(&root, "c").0, 65534, "an id that is not mapped appears as nobody");
    // A copy up keeps the mapped owner; the layer stays as it was for others.
    write(&root, "b").unwrap();
    let stat = rustix::fs::stat(store.upper("mapped").join("b")).unwrap();
    assert_eq!((stat.st_uid, stat.st_gid), (FIRST + 33, FIRST + 44));
    let plain = store.mount("plain", false).unwrap();
    assert_eq!((owner(&plain, "a"), owner(&plain, "b")), ((0, 0), (33, 44)));
    assert_eq!(read(&plain, "b").unwrap(), b"b");
    let volume = store.mount_image_with("mapped", &image.id, &options).unwrap();
    assert_eq!(owner(&volume, "b"), (FIRST + 33, FIRST + 44));
    assert_eq!(write(&volume, "b").unwrap_err(), rustix::io::Errno::ROFS);
}
