//! Malicious layers, which try to escape from their directory or to fill the disk.

mod node;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::PathBuf,
};

use image::{Digest, ErrorKind, Registries, Store};
use node::{Compression, Registry, Tar, TestImage, open, tree};

/// Pulls an image with these layers. Returns the directories of its layers.
async fn pull(registry: &Registry, store: &Store, layers: Vec<Vec<u8>>) -> Result<Vec<PathBuf>, image::Error> {
    let mut image = TestImage::new();
    let mut directories = Vec::new();
    let mut parent = None;
    for tar in layers {
        let chain = Digest::chain(parent.as_ref(), &Digest::of(&tar));
        directories.push(store.root().join("layers").join(chain.hex()));
        parent = Some(chain);
        image = image.layer(tar, Compression::Zstd);
    }
    registry.push("t", "1", &image).await;
    store.pull(&registry.name("t:1"), None, None).await.map(|_| directories)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_the_layer() {
    let registry = Registry::start();
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let (out, target) = (outside.path().to_str().unwrap(), victim.to_str().unwrap());
    let up = format!("{}{}", "../".repeat(12), &out[1..]);
    let refused = [
        ("dots", Tar::new().file(&format!("{up}/new"), 0o644, b"x").done()),
        ("dots inside", Tar::new().dir("a/", 0o755).file(&format!("a/{up}/new"), 0o644, b"x").done()),
        ("hard link by dots", Tar::new().hard_link("link", &format!("{up}/victim")).file("link", 0o666, b"x").done()),
        ("hard link by path", Tar::new().hard_link("link", target).done()),
        ("root is a file", Tar::new().file("./", 0o644, b"").file(".", 0o644, b"x").done()),
        ("parent is a file", Tar::new().file("a", 0o644, b"").file("a/b", 0o644, b"x").done()),
        ("directory link loop", Tar::new().symlink("a", "b").symlink("b", "a").file("a/x", 0o644, b"x").done()),
        ("unknown kind", Tar::new().node("z", tar::EntryType::new(b'Z'), (0, 0)).done()),
        ("long name", Tar::new().pax(&[("path", &[b'a'; 300])]).file("x", 0o644, b"").done()),
        ("long path", Tar::new().pax(&[("path", &b"a/".repeat(3000)[..])]).file("x", 0o644, b"").done()),
        ("nul", Tar::new().pax(&[("path", b"a\0b")]).file("x", 0o644, b"").done()),
        ("huge extension", Tar::new().pax(&[("comment", &vec![b'a'; 2 << 20])]).file("x", 0o644, b"").done()),
        ("huge size", Tar::new().pax(&[("size", b"9223372036854775807")]).file("x", 0o644, b"").done()),
        (
            "huge sparse",
            Tar::new()
                .pax(&[("GNU.sparse.map", b"0,0"), ("GNU.sparse.size", b"9223372036854775807")])
                .file("x", 0o644, b"")
                .done(),
        ),
        ("long link", Tar::new().pax(&[("linkpath", &b"a/".repeat(5000)[..])]).symlink("x", "y").done()),
        ("headers only", (0..100).fold(Tar::new(), |tar, _| tar.pax(&[("comment", b"a")])).done()),
        ("many attributes", {
            let names: Vec<String> = (0..300).map(|at| format!("SCHILY.xattr.trusted.n{at}")).collect();
            let records: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
            Tar::new().pax(&records).file("x", 0o644, b"").done()
        }),
        ("garbage", vec![0x55; 4096]),
    ];
    for (case, tar) in refused {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let error = pull(&registry, &store, vec![tar]).await.expect_err(case);
        assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::Corrupt), "{case}: {error:?}");
        assert!(error.message.contains("layer sha256:"), "{case}: {error}");
        node::until_deleted(dir.path());
        drop(store);
        let leftovers: Vec<_> =
            tree(dir.path()).into_iter().filter(|p| p.contains("tmp/") || p.contains("layers/")).collect();
        assert_eq!(leftovers, Vec::<String>::new(), "{case}");
        assert_eq!(tree(outside.path()), ["victim"], "{case}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_resolved_within_the_layer() {
    let (registry, dir, outside) = (Registry::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    let out = outside.path().to_str().unwrap();
    let tar = Tar::new()
        .symlink("esc", out)
        .file("esc/a", 0o644, b"a")
        .symlink("up", &format!("{}{}", "../".repeat(12), &out[1..]))
        .file("up/b", 0o644, b"b")
        .file("/abs", 0o644, b"c")
        .symlink("file", &format!("{out}/victim"))
        .file("file", 0o644, b"not through the link")
        .done();
    let layer = pull(&registry, &store, vec![tar]).await.unwrap().remove(0);
    assert_eq!(tree(outside.path()), Vec::<String>::new());
    assert_eq!(fs::read(layer.join(&out[1..]).join("a")).unwrap(), b"a");
    assert_eq!(fs::read(layer.join(&out[1..]).join("b")).unwrap(), b"b");
    assert_eq!(fs::read(layer.join("abs")).unwrap(), b"c");
    assert!(layer.join("file").symlink_metadata().unwrap().is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn decompression_bombs_are_stopped() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let registries = Registries { max_layer_bytes: Some(4 << 20), ..Registries::default() };
    let store = Store::open(dir.path(), registries).unwrap();
    let zeros = vec![0; 8 << 20];
    for tar in [Tar::new().file("zeros", 0o644, &zeros).done(), [Tar::new().done(), zeros.clone()].concat()] {
        let error = pull(&registry, &store, vec![tar]).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains("larger than 4194304 bytes"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_layer_may_contain() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    let long = format!("deep/{}", "n".repeat(200));
    let capability: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let tar = Tar::new()
        .dir("./", 0o711)
        .dir("sticky", 0o1777)
        .dir("closed", 0o000)
        .file("closed/x", 0o600, b"x")
        .owned("suid", 0o4755, (1000, 2000), b"#!")
        .hard_link("suid2", "suid")
        .node("dev", tar::EntryType::Char, (1, 3))
        .node("fifo", tar::EntryType::Fifo, (0, 0))
        .pax(&[
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.user.note", b"hello"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.security.selinux", b"bad"),
            ("mtime", b"1500000000.25"),
        ])
        .file("attributes", 0o755, b"x")
        .pax(&[("path", long.as_bytes())])
        .file("ignored", 0o644, b"long")
        .pax(&[("GNU.sparse.map", b"4096,3,1048576,2"), ("GNU.sparse.size", b"2097152")])
        .file("sparse", 0o644, b"abcde")
        .file("twice", 0o644, b"first")
        .file("twice", 0o600, b"second")
        .symlink("swap", "sticky")
        .dir("swap", 0o700)
        .file("swap/in", 0o644, b"in")
        .done();
    let layer = pull(&registry, &store, vec![tar]).await.unwrap().remove(0);
    let at = |name: &str| layer.join(name).symlink_metadata().unwrap();
    let mode = |name: &str| at(name).permissions().mode() & 0o7777;
    assert_eq!(
        [mode(""), mode("sticky"), mode("closed"), mode("suid"), mode("swap")],
        [0o711, 0o1777, 0, 0o4755, 0o700]
    );
    assert_eq!((at("suid").uid(), at("suid").gid(), at("suid").ino()), (1000, 2000, at("suid2").ino()));
    assert_eq!(at("closed").mtime(), 1_600_000_000, "directories get their times last");
    assert!(at("dev").file_type().is_char_device() && at("dev").rdev() == rustix::fs::makedev(1, 3));
    assert!(at("fifo").file_type().is_fifo());
    assert_eq!((at("attributes").mtime(), at("attributes").mtime_nsec()), (1_500_000_000, 250_000_000));
    let xattr = |name: &str| {
        let mut value = vec![0; 64];
        rustix::fs::getxattr(layer.join("attributes"), name, &mut value).map(|n| value[..n].to_vec())
    };
    assert_eq!(xattr("security.capability").unwrap(), capability);
    assert_eq!(xattr("user.note").unwrap(), b"hello");
    assert!(xattr("trusted.overlay.opaque").is_err() && xattr("security.selinux").is_err());
    assert_eq!(fs::read(layer.join(&long)).unwrap(), b"long");
    let sparse = fs::read(layer.join("sparse")).unwrap();
    assert_eq!(
        (sparse.len(), &sparse[4096..4099], &sparse[1_048_576..1_048_578]),
        (2_097_152, &b"abc"[..], &b"de"[..])
    );
    assert!(at("sparse").blocks() < 64, "holes are not filled");
    assert_eq!((fs::read(layer.join("twice")).unwrap(), mode("twice")), (b"second".to_vec(), 0o600));
    assert_eq!(fs::read(layer.join("swap/in")).unwrap(), b"in");
}

#[tokio::test(flavor = "multi_thread")]
async fn implied_directories_have_the_attributes_of_lower_layers() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    let base = Tar::new()
        .dir("./", 0o755)
        .dir("tmp", 0o1777)
        .symlink("lib", "usr/lib")
        .dir("usr", 0o755)
        .dir("usr/lib", 0o711);
    let upper = Tar::new().file("tmp/a", 0o644, b"a").file("new/b", 0o644, b"b");
    let layers = pull(&registry, &store, vec![base.done(), upper.done()]).await.unwrap();
    let mode = |name: &str| layers[1].join(name).symlink_metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(""), mode("tmp"), mode("new")], [0o755, 0o1777, 0o755]);
}
