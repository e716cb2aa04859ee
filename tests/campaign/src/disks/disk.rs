use std::{
    fs,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::namespaces::NodeNamespaces;

/// A file system on a loop device, mounted inside a node.
///
/// The backing file of a *stacked* disk is on a second such file system. When that is frozen, the first one is on a
/// device that serves reads and completes no write.
#[derive(Debug)]
pub(super) struct Disk {
    namespaces: NodeNamespaces,
    /// Backing file of the loop device.
    image: PathBuf,
    /// Mount point.
    pub(super) mount_point: PathBuf,
    /// Mount point of the file system with the backing file, for a stacked disk.
    lower: Option<PathBuf>,
    /// Root of the frozen file system, opened before the freeze, so that it can be thawed after the node is gone.
    frozen: Option<fs::File>,
    slow: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Disk {
    /// Creates a disk with its backing file in `dir` and mounts it.
    pub(super) fn create(namespaces: NodeNamespaces, dir: &Path, mount_point: &Path, mib: u32, stacked: bool) -> Self {
        let mut disk = Self {
            namespaces,
            image: dir.join("disk.img"),
            mount_point: mount_point.to_owned(),
            lower: None,
            frozen: None,
            slow: None,
        };
        if stacked {
            let (image, lower) = (dir.join("lower.img"), dir.join("lower"));
            disk.format(&image, mib + 64);
            disk.mount(&image, &lower);
            disk.image = lower.join("disk.img");
            disk.lower = Some(lower);
        }
        disk.format(&disk.image, mib);
        disk.mount(&disk.image, &disk.mount_point);
        disk
    }

    fn format(&self, image: &Path, mib: u32) {
        let image = image.to_string_lossy().into_owned();
        self.run("truncate", &["-s", &format!("{mib}M"), &image]);
        // No blocks are reserved for root, so that a full disk is full for root, too.
        self.run("mkfs.ext4", &["-q", "-F", "-m", "0", &image]);
    }

    fn mount(&self, image: &Path, mount_point: &Path) {
        fs::create_dir_all(mount_point).expect("create the mount point");
        self.run("mount", &["-o", "loop", &image.to_string_lossy(), &mount_point.to_string_lossy()]);
        self.run("chmod", &["0711", &mount_point.to_string_lossy()]);
    }

    #[track_caller]
    fn run(&self, program: &str, args: &[&str]) {
        if let Err(error) = self.try_run(program, args) {
            panic!("{error}");
        }
    }

    fn try_run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let output = self.namespaces.command(program, args).stderr(Stdio::piped()).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("{program} {args:?}: {}", text.trim()))
    }

    /// Freezes the file system: no write completes until [`Disk::thaw`].
    pub(super) fn freeze(&mut self) {
        let mount_point = self.mount_point.clone();
        self.freeze_at(mount_point);
    }

    /// Freezes the file system below a stacked disk: the device completes no write until [`Disk::thaw`].
    pub(super) fn stall(&mut self) {
        let lower = self.lower.clone().expect("a stacked disk");
        self.freeze_at(lower);
    }

    fn freeze_at(&mut self, mount_point: PathBuf) {
        let path = self.namespaces.path(&mount_point);
        self.frozen = Some(fs::File::open(path).expect("open the root of the disk"));
        self.run("fsfreeze", &["-f", &mount_point.to_string_lossy()]);
    }

    /// Ends [`Disk::freeze`] and [`Disk::stall`].
    pub(super) fn thaw(&mut self) {
        if let Some(root) = self.frozen.take() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd());
            let status = Command::new("fsfreeze").args(["-u", &path]).status();
            assert!(status.is_ok_and(|status| status.success()), "fsfreeze -u {path}");
        }
    }

    /// Slows the disk down: writes are possible only for a few milliseconds, ten times a second.
    pub(super) fn slow_down(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_stop, namespaces) = (stop.clone(), self.namespaces);
        let mount_point = self.mount_point.to_string_lossy().into_owned();
        let thread = thread::spawn(move || {
            while !thread_stop.load(Ordering::Relaxed) {
                let _ = namespaces.command("fsfreeze", &["-f", &mount_point]).status();
                thread::sleep(Duration::from_millis(100));
                let _ = namespaces.command("fsfreeze", &["-u", &mount_point]).status();
                thread::sleep(Duration::from_millis(5));
            }
        });
        self.slow = Some((stop, thread));
    }

    /// Ends [`Disk::slow_down`].
    pub(super) fn speed_up(&mut self) {
        if let Some((stop, thread)) = self.slow.take() {
            stop.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }

    /// Writes a file until the disk is full.
    pub(super) fn fill(&self) {
        fill(self.namespaces, &self.mount_point);
    }

    /// Removes the file that [`Disk::fill`] wrote.
    pub(super) fn empty(&self) {
        self.run("rm", &["-f", &filler(&self.mount_point)]);
    }

    /// Makes the file system read-only, as an I/O error of its journal does. Only a new mount ends this (ext4(5),
    /// `abort`).
    pub(super) fn abort(&self) {
        self.run("mount", &["-o", "remount,abort", &self.mount_point.to_string_lossy()]);
    }

    /// Copies the current content of the disk, for [`Disk::lose_writes`].
    pub(super) fn save(&mut self) {
        self.freeze();
        let result = fs::copy(&self.image, self.image.with_extension("old"));
        self.thaw();
        result.expect("copy the disk");
    }

    /// Unmounts the disk.
    ///
    /// # Errors
    /// `target is busy`, if a process or a mount still uses it.
    pub(super) fn unmount(&self) -> Result<(), String> {
        let mut result = Ok(());
        // Objects may be released after the response to the request that removed them.
        for _ in 0..50 {
            result = self.try_run("umount", &[&self.mount_point.to_string_lossy()]);
            if result.is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        result
    }

    /// Replaces the content of the disk by the copy of [`Disk::save`]. The disk must not be mounted.
    pub(super) fn lose_writes(&self) {
        fs::rename(self.image.with_extension("old"), &self.image).expect("rename the copy");
    }

    /// Checks the file system and mounts it again.
    pub(super) fn mount_again(&self) {
        // Exit code 1: errors were corrected.
        let status = self.namespaces.command("e2fsck", &["-p", &self.image.to_string_lossy()]).status();
        assert!(status.is_ok_and(|status| status.code().is_some_and(|code| code <= 1)), "e2fsck of the disk");
        self.mount(&self.image, &self.mount_point);
    }
}

impl Drop for Disk {
    /// Thaws the file system, because a frozen one survives the end of its mount namespace.
    fn drop(&mut self) {
        self.speed_up();
        self.thaw();
    }
}

/// Writes a file until a file system of a node is full.
pub(super) fn fill(namespaces: NodeNamespaces, mount_point: &Path) {
    let script = format!("for size in 1M 64k 4k 512; do dd if=/dev/zero bs=$size >> {}; done", filler(mount_point));
    // The script fails with ENOSPC.
    let _ = namespaces.command("sh", &["-c", &script]).status();
}

/// Returns the path of the file that [`fill`] writes.
pub(super) fn filler(mount_point: &Path) -> String {
    mount_point.join("filler").to_string_lossy().into_owned()
}
