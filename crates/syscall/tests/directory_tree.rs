//! Removes trees that are difficult to remove.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags},
};
use syscall::directory_tree::{DEPTH_MAX, remove};

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Creates a directory on tmpfs, where directories are cheap.
fn directory(name: &str) -> (OwnedFd, std::path::PathBuf) {
    let path = std::path::PathBuf::from(format!("/dev/shm/directory-tree-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("create a directory in /dev/shm");
    (rustix::fs::open(&path, OPEN, Mode::empty()).expect("open the directory"), path)
}

#[test]
fn a_tree_deeper_than_the_limit_is_removed() {
    let (top, path) = directory("deep");
    let mut at = rustix::fs::openat(&top, c".", OPEN, Mode::empty()).expect("open the directory");
    for _ in 0..2 * DEPTH_MAX + 100 {
        rustix::fs::mkdirat(&at, c"d", Mode::RWXU).expect("create a directory");
        rustix::fs::mkdirat(&at, c"e", Mode::RWXU).expect("create a directory");
        at = rustix::fs::openat(&at, c"d", OPEN, Mode::empty()).expect("open the directory");
    }
    drop(at);
    remove(top.as_fd(), c"d").expect("remove the tree");
    remove(top.as_fd(), c"e").expect("remove the tree");
    assert_eq!(std::fs::read_dir(&path).expect("list the directory").count(), 0);
    std::fs::remove_dir(&path).expect("remove the directory");
}

#[test]
fn a_wide_tree_is_removed_without_following_symlinks() {
    let (top, path) = directory("wide");
    std::fs::create_dir(path.join("w")).expect("create a directory");
    std::fs::create_dir(path.join("outside")).expect("create a directory");
    std::fs::write(path.join("outside/file"), "kept").expect("write a file");
    for n in 0..3000 {
        std::fs::create_dir(path.join(format!("w/{n}"))).expect("create a directory");
        std::fs::write(path.join(format!("w/{n}/f")), "").expect("write a file");
        std::os::unix::fs::symlink("../../outside", path.join(format!("w/{n}/l"))).expect("create a symlink");
    }
    remove(top.as_fd(), c"w").expect("remove the tree");
    remove(top.as_fd(), c"absent").expect("remove a missing file");
    assert!(!path.join("w").exists() && path.join("outside/file").exists());
    remove(CWD, &std::ffi::CString::new(path.to_str().expect("the path is UTF-8")).expect("the path contains no NUL"))
        .expect("remove the tree");
    assert!(!path.exists());
}
