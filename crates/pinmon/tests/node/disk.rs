//! A file system for one test that can be made to hang: ext4 on a loop device, in a mount namespace of this thread.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use testbed::run;

/// Size in bytes: many times what the containers of a test write before their pipes are full.
const SIZE: u64 = 256 << 20;

pub struct Disk {
    directory: tempfile::TempDir,
    device: String,
    frozen: bool,
}

impl Disk {
    /// Creates and mounts the file system. The mount is visible only to this thread and to processes that it starts
    /// later.
    pub fn new() -> Self {
        syscall::mount_namespace::unshare_mounts().expect("unshare the mount namespace (are you root?)");
        let directory = tempfile::tempdir().expect("tempdir");
        let image = directory.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(SIZE)).expect("an image");
        run("mkfs.ext4", &["-q", "-F", text(&image)]);
        let device = run("losetup", &["--find", "--show", text(&image)]);
        let disk = Self { directory, device, frozen: false };
        std::fs::create_dir(disk.path()).expect("mkdir");
        run("mount", &[&disk.device, text(&disk.path())]);
        disk
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// Blocks every process that writes to the file system, in a state that not even SIGKILL interrupts.
    pub fn freeze(&mut self) {
        self.frozen = true;
        run("fsfreeze", &["--freeze", text(&self.path())]);
    }

    pub fn thaw(&mut self) {
        run("fsfreeze", &["--unfreeze", text(&self.path())]);
        self.frozen = false;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let try_run = |program: &str, arguments: &[&str]| {
            let _ = Command::new(program).args(arguments).output();
        };
        if self.frozen {
            try_run("fsfreeze", &["--unfreeze", text(&self.path())]);
        }
        try_run("umount", &["--lazy", text(&self.path())]);
        try_run("losetup", &["--detach", &self.device]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}
