//! Trees with which containers and images try to break a walk over them: deep, wide, moved during the walk.

mod node;

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use image::{DiskFormat, ErrorKind};
use node::{Compression, PATIENCE, Tar, TestImage, archive, load, open, tree};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use testbed::wait_until;

const NAME: &str = "localhost/deep:1";

fn small() -> TestImage {
    TestImage::new().layer(Tar::new().file("x", 0o644, b"x").done(), Compression::Gzip)
}

/// Creates `levels` nested directories, with a file of 1 MiB in the last one.
fn nest(dir: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = rustix::fs::open(dir, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    let file = rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_writable_layer_is_measured_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    load(&store, &small(), NAME).await;
    // Created elsewhere, so that the first sample includes all of it.
    nest(&dir.path().join("layers"), 10_000);
    store.prepare("c", NAME).unwrap();
    std::fs::rename(dir.path().join("layers/d"), store.upper("c").join("d")).unwrap();
    wait_until("the size of the writable layer", PATIENCE, || store.snapshot_usage("c").inodes == 10_002);
    assert!(store.snapshot_usage("c").bytes >= 1 << 20, "the file below all of them counts");
    store.discard("c").unwrap();
    wait_until("the removal", PATIENCE, || store.totals().trash == 0);
    drop(store);
    assert_eq!(tree(&dir.path().join("tmp")), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_a_crash_never_fail_a_start() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let (deep, undeletable) = (dir.path().join("tmp/layer-0"), dir.path().join("tmp/trash-0"));
    std::fs::create_dir(&deep).unwrap();
    nest(&deep, 5_000);
    std::fs::create_dir(&undeletable).unwrap();
    std::fs::write(undeletable.join("immutable"), "").unwrap();
    let chattr =
        |flag: &str| Command::new("chattr").arg(flag).arg(undeletable.join("immutable")).status().unwrap().success();
    assert!(chattr("+i"), "chattr is needed: apt install e2fsprogs");
    let store = open(dir.path());
    load(&store, &small(), NAME).await;
    store.remove(NAME).await.unwrap();
    wait_until("the removal of the rest", PATIENCE, || store.totals().trash == 1);
    drop(store);
    assert!(undeletable.join("immutable").exists() && !deep.exists());
    assert!(chattr("-i"));
    let _store = open(dir.path());
    node::until_deleted(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_moved_during_a_walk_do_not_lead_it_outside() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("precious"), vec![1; 3 << 20]).unwrap();
    let store = open(dir.path());
    load(&store, &small(), NAME).await;
    store.prepare("c", NAME).unwrap();
    let upper = store.upper("c");
    (0..50).for_each(|n| std::fs::create_dir_all(upper.join(format!("a/{n}/b/c/d"))).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, aside, link) = (upper.join("a"), upper.join("aside"), upper.join("link"));
            std::os::unix::fs::symlink(outside.path(), &link).unwrap();
            // A failed assertion below must not wait for this thread forever.
            let end = Instant::now() + Duration::from_secs(60);
            while !done.load(Ordering::Relaxed) && Instant::now() < end {
                let _ = std::fs::rename(&a, &aside);
                let _ = std::fs::rename(&link, &a);
                let _ = std::fs::rename(&a, &link);
                let _ = std::fs::rename(&aside, &a);
            }
        });
        wait_until("two samples", PATIENCE, || store.snapshot_usage("c").inodes > 2);
        assert!(store.snapshot_usage("c").bytes < 3 << 20, "no link is followed");
        done.store(true, Ordering::Relaxed);
    });
    store.discard("c").unwrap();
    drop(store);
    assert!(outside.path().join("precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn symlinks_do_not_hide_how_deep_a_layer_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // 30 times 40 levels, each reached through the link to the one before.
    let levels = ["a"; 40].join("/");
    let mut tar = Tar::new().dir(&format!("{levels}/"), 0o755).symlink("l0", &levels);
    for link in 0..30 {
        tar = tar.dir(&format!("l{link}/{levels}/"), 0o755);
        tar = tar.symlink(&format!("l{}", link + 1), &format!("l{link}/{levels}"));
    }
    let image = TestImage::new().layer(tar.done(), Compression::Gzip);
    let refused = store.import(&mut &archive(&image, NAME)[..]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
    assert!(refused.message.contains("deeper than 1000 directories"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_format_is_readable_while_the_store_is_open() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(DiskFormat::read(dir.path()).unwrap(), None);
    let store = open(dir.path());
    let format = DiskFormat::read(dir.path()).unwrap().unwrap();
    assert_eq!(format, DiskFormat::CURRENT);
    assert!(format.is_supported() && !DiskFormat { index: format.index + 1, ..format }.is_supported());
    drop(store);
    std::fs::write(dir.path().join("format"), "99\n").unwrap();
    assert!(!DiskFormat::read(dir.path()).unwrap().unwrap().is_supported());
}
