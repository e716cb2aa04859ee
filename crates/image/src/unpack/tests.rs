use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use tar::EntryType;

use super::{Limits, UnpackResult, tree::Tree, unpack};
use crate::{Error, ErrorKind, single_flight::CancelToken};

fn archive(entries: &[(EntryType, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, path) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o751);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        tar.append_data(&mut header, path, &[][..]).unwrap();
    }
    tar.into_inner().unwrap()
}

fn open(dir: &std::path::Path) -> rustix::fd::OwnedFd {
    rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn unpack_into(dir: &std::path::Path, archive: &[u8], cancel: &CancelToken) -> Result<UnpackResult, Error> {
    unpack(archive, open(dir), Limits { bytes: 1 << 20, entries: 100 }, cancel)
}

#[test]
fn directories_and_links_drop_the_cached_directories() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    std::os::unix::fs::symlink("directory", dir.path().join("link")).unwrap();
    let (mut tree, parent) = (Tree::new(open(dir.path())), open(dir.path()));
    for (name, was_traversable) in [("file", false), ("link", true), ("directory", true)] {
        assert_eq!(tree.clear(&parent, name.as_bytes()).unwrap(), was_traversable, "{name}");
    }
}

#[test]
fn a_directory_that_is_replaced_is_forgotten_with_what_is_below() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(&[
        (EntryType::Directory, "a"),
        (EntryType::Directory, "a/b"),
        (EntryType::Regular, "a/implied/x"),
        (EntryType::Directory, "a-"),
        (EntryType::Directory, "a0"),
        (EntryType::Directory, "a.b/c"),
        (EntryType::Regular, "a"),
    ]);
    let unpacked = unpack_into(dir.path(), &archive, &CancelToken::never()).unwrap();
    assert_eq!(unpacked.implied, [b"".to_vec(), b"a.b".to_vec()]);
    for name in ["a-", "a0", "a.b/c"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o751, "{name}");
    }
    assert!(dir.path().join("a").is_file());
}

#[test]
fn a_cancelled_layer_is_not_unpacked_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(&[(EntryType::Regular, "a")]);
    let error = unpack_into(dir.path(), &archive, &CancelToken::already_cancelled()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
