//! Removal of trees that are made to break it.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags},
};
use syscall::directory_tree::{DEPTH_MAX, remove};

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// In memory, where directories cost little.
fn directory(name: &str) -> (OwnedFd, std::path::PathBuf) {
    let path = std::path::PathBuf::from(format!("/dev/shm/directory-tree-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("/dev/shm is a tmpfs");
    (rustix::fs::open(&path, OPEN, Mode::empty()).expect("opened"), path)
}

#[test]
fn a_tree_deeper_than_a_walk_descends_is_removed() {
    let (top, path) = directory("deep");
    let mut at = rustix::fs::openat(&top, c".", OPEN, Mode::empty()).expect("opened");
    for _ in 0..2 * DEPTH_MAX + 100 {
        rustix::fs::mkdirat(&at, c"d", Mode::RWXU).expect("made");
        rustix::fs::mkdirat(&at, c"e", Mode::RWXU).expect("made");
        at = rustix::fs::openat(&at, c"d", OPEN, Mode::empty()).expect("opened");
    }
    drop(at);
    remove(top.as_fd(), c"d").expect("removed");
    remove(top.as_fd(), c"e").expect("removed");
    assert_eq!(std::fs::read_dir(&path).expect("listed").count(), 0);
    std::fs::remove_dir(&path).expect("empty");
}

#[test]
fn a_wide_tree_is_removed_and_a_symlink_leads_nowhere() {
    let (top, path) = directory("wide");
    std::fs::create_dir(path.join("w")).expect("made");
    std::fs::create_dir(path.join("outside")).expect("made");
    std::fs::write(path.join("outside/file"), "kept").expect("written");
    for n in 0..3000 {
        std::fs::create_dir(path.join(format!("w/{n}"))).expect("made");
        std::fs::write(path.join(format!("w/{n}/f")), "").expect("written");
        std::os::unix::fs::symlink("../../outside", path.join(format!("w/{n}/l"))).expect("linked");
    }
    remove(top.as_fd(), c"w").expect("removed");
    remove(top.as_fd(), c"absent").expect("nothing to do");
    assert!(!path.join("w").exists() && path.join("outside/file").exists());
    remove(CWD, &std::ffi::CString::new(path.to_str().expect("text")).expect("no NUL")).expect("removed");
    assert!(!path.exists());
}
