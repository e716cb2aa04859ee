use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};

use super::*;

struct Layer {
    directory: tempfile::TempDir,
}

impl Layer {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("upper")).expect("a directory");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("upper").join(name)
    }

    /// Returns the archive and the names of deleted files.
    fn packed(&self) -> (Vec<u8>, Vec<String>) {
        let mut bytes = Vec::new();
        let packer = Packer::new(&mut bytes, self.directory.path().join("scratch"));
        let deleted = packer.pack(&self.path("")).expect("packed");
        (bytes, deleted)
    }
}

/// Returns the names, types and contents of all entries, sorted.
fn entries(archive: &[u8]) -> Vec<(String, tar::EntryType, String)> {
    let mut archive = tar::Archive::new(archive);
    let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("an entry");
        let mut text = String::new();
        let _ = entry.read_to_string(&mut text).expect("text");
        (entry.path().expect("a path").to_string_lossy().into_owned(), entry.header().entry_type(), text)
    };
    let mut entries: Vec<_> = archive.entries().expect("entries").map(entry).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// Runs `work` while a thread calls `disturb` repeatedly; a failure of either ends both.
fn while_repeating(disturb: impl Fn() + Sync, work: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        let _stop = Stop(&stop);
        work();
    });
}

#[test]
fn existing_files_are_archived_and_deleted_ones_are_named() {
    let layer = Layer::new();
    fs::create_dir(layer.path("etc")).expect("a directory");
    fs::write(layer.path("etc/new"), "text").expect("file");
    fs::hard_link(layer.path("etc/new"), layer.path("same")).expect("hard link");
    symlink("/nowhere", layer.path("link")).expect("symlink");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, layer.path("etc/old"), FileType::CharacterDevice, mode, 0).expect("whiteout");
    mknodat(CWD, layer.path("fifo"), FileType::Fifo, mode, 0).expect("FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(layer.path("socket")).expect("socket");
    let (archive, deleted) = layer.packed();
    assert_eq!(deleted, ["etc/old"]);
    let entries = entries(&archive);
    let names: Vec<_> = entries.iter().map(|(name, ..)| name.trim_end_matches('/')).collect();
    assert_eq!(names, ["etc", "etc/new", "fifo", "link", "same"]);
    let linked = entries.iter().filter(|(_, kind, _)| *kind == tar::EntryType::Link).count();
    let texts = entries.iter().filter(|(_, _, text)| text == "text").count();
    assert_eq!((linked, texts), (1, 1), "{entries:?}");
}

#[test]
fn directories_swapped_for_links_are_not_followed() {
    let layer = Layer::new();
    let outside = tempfile::tempdir().expect("a directory of the node");
    fs::write(outside.path().join("secret"), "the node's").expect("file");
    for n in 0..200 {
        fs::create_dir(layer.path(&format!("{n}"))).expect("a directory");
        fs::write(layer.path(&format!("{n}/secret")), "the container's").expect("file");
        symlink(outside.path(), layer.path(&format!("{n}-link"))).expect("symlink");
    }
    let swap = || {
        for n in 0..200 {
            let (one, other) = (layer.path(&format!("{n}")), layer.path(&format!("{n}-link")));
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("swap");
        }
    };
    while_repeating(swap, || {
        for _ in 0..20 {
            let (archive, _) = layer.packed();
            assert!(!archive.windows(10).any(|bytes| bytes == b"the node's"), "a file of the node is in the archive");
        }
    });
}

#[test]
fn a_file_that_grows_or_shrinks_keeps_its_length_in_the_archive() {
    let layer = Layer::new();
    fs::write(layer.path("log"), "x".repeat(100_000)).expect("file");
    fs::write(layer.path("next"), "whole").expect("file");
    let file = File::options().write(true).open(layer.path("log")).expect("file");
    let resize = || file.set_len(200_000).and_then(|()| file.set_len(10_000)).expect("length");
    while_repeating(resize, || {
        for _ in 0..2000 {
            let (archive, _) = layer.packed();
            let names: Vec<_> = entries(&archive).into_iter().map(|(name, ..)| name).collect();
            assert_eq!(names, ["log", "next"]);
        }
    });
}

#[test]
fn a_sparse_file_takes_only_the_space_of_its_data() {
    let layer = Layer::new();
    let mut file = File::create(layer.path("sparse")).expect("file");
    file.set_len(1 << 40).expect("length");
    file.seek(SeekFrom::Start(1 << 30)).expect("seek");
    file.write_all(b"data").expect("write");
    let (archive, _) = layer.packed();
    assert!(archive.len() < 1 << 20, "{} bytes", archive.len());
    let mut archive = tar::Archive::new(&archive[..]);
    let entry = archive.entries().expect("entries").next().expect("one").expect("an entry");
    assert_eq!(entry.size(), 1 << 40);
}

#[test]
fn a_tree_deeper_than_any_path_is_refused() {
    let layer = Layer::new();
    let mut at = open(layer.path(""), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("the layer");
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).expect("mkdir");
        at = rustix::fs::openat(&at, "d", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
    }
    let packed = Packer::new(Vec::new(), layer.directory.path().join("scratch")).pack(&layer.path(""));
    assert!(packed.expect_err("too deep").to_string().contains("longer than 4095 bytes"));
    // The removal of the standard library is recursive and would exhaust the stack.
    let removed = std::process::Command::new("rm").arg("-rf").arg(layer.path("")).status().expect("rm runs");
    assert!(removed.success());
}
