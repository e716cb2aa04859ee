//! File systems on loop devices.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use testbed::{holds_within, run};

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A loop device, which the kernel detaches after its last use, also if that is by a process that was killed.
struct Loop(String);

impl Loop {
    fn attach(backing: &Path) -> Self {
        Self(run("losetup", &["--find", "--show", text(backing)]))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// A file system on a loop device, mounted.
pub(crate) struct Disk {
    /// `loop3`
    pub(crate) device: String,
    pub(crate) mounted: PathBuf,
}

impl Disk {
    pub(crate) fn attach(backing: &Path, kind: &str, at: &Path) -> Self {
        let device = Loop::attach(backing);
        fs::create_dir_all(at).unwrap();
        // Copies of one file system have the same UUID.
        let options = if kind == "xfs" { "nouuid" } else { "defaults" };
        run("mount", &["-t", kind, "-o", options, &device.0, text(at)]);
        Self { device: device.0.trim_start_matches("/dev/").to_owned(), mounted: at.to_owned() }
    }

    /// Mounts a new file system, for a store in its directory `store`.
    pub(crate) fn for_store(backing: &Path, kind: &str, at: &Path) -> Self {
        let disk = Self::attach(backing, kind, at);
        // The names of its directories are synced; everything else must be synced by the store.
        fs::create_dir(disk.mounted.join("store")).unwrap();
        run("sync", &["--file-system", text(&disk.mounted)]);
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A thread of the store may still use it.
        holds_within(Duration::from_secs(5), || {
            Command::new("umount").arg(&self.mounted).output().is_ok_and(|done| done.status.success())
        });
    }
}

/// Creates an empty file system in a new file.
pub(crate) fn make_file_system(kind: &str, backing: &Path) {
    let (size, args): (u64, &[&str]) = match kind {
        "ext4" => (96 << 20, &["-q", "-F"]),
        "xfs" => (320 << 20, &["-q", "-f"]),
        "btrfs" => (160 << 20, &["-q", "-f", "--mixed"]),
        other => panic!("{other}"),
    };
    let new = backing.with_extension("new");
    fs::File::create(&new).unwrap().set_len(size).unwrap();
    run(&format!("mkfs.{kind}"), &[args, &[text(&new)]].concat());
    copy(&new, backing);
    fs::remove_file(&new).unwrap();
}

/// Copies a disk. Blocks of zeros take no memory.
pub(crate) fn copy(from: &Path, to: &Path) {
    run("cp", &["--sparse=always", text(from), text(to)]);
}

/// Mounts another boot id in this mount namespace, until the value is dropped.
pub(crate) fn another_boot(dir: &Path, number: usize) -> impl Drop {
    struct BootIdMount;
    impl Drop for BootIdMount {
        fn drop(&mut self) {
            run("umount", &["/proc/sys/kernel/random/boot_id"]);
        }
    }
    let file = dir.join("boot_id");
    fs::write(&file, format!("00000000-0000-0000-0000-{number:012}\n")).unwrap();
    run("mount", &["--bind", text(&file), "/proc/sys/kernel/random/boot_id"]);
    BootIdMount
}
