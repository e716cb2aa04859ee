use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

/// The applets of the root file system.
const APPLETS: &str = "awk basename cat chmod chown cp cut date dd df dirname echo env false find grep head hostname id \
    ip kill ln ls mkdir mkfifo mknod mount mv nice nohup nproc od printf ps pwd readlink rm rmdir sed seq setsid sh sleep \
    sort stat stty sync tail test timeout top touch tr true tty umount uname wc yes";

/// Returns the static busybox of this machine.
pub fn busybox() -> Vec<u8> {
    let paths = ["/bin/busybox", "/usr/bin/busybox"];
    paths.iter().find_map(|path| fs::read(path).ok()).expect("a static busybox; scripts/setup test installs it")
}

/// Makes a root file system: busybox with its applets in `/bin`, `/tmp` for everyone, and empty mount points. A copy,
/// because a container may change it.
pub fn make_root(root: &Path, busybox: &[u8]) {
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(directory)).expect("a directory of the root file system");
    }
    let mode = |path: &str, mode| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("chmod in the root file system");
    };
    fs::write(root.join("bin/busybox"), busybox).expect("write busybox");
    mode("bin/busybox", 0o755);
    mode("tmp", 0o1777);
    for applet in APPLETS.split_whitespace() {
        symlink("busybox", root.join("bin").join(applet)).expect("link an applet");
    }
}
