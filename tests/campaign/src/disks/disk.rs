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

use crate::inside::Inside;

/// A file system of its own on a loop device, mounted inside a node.
///
/// A *stacked* disk lies on a second loop device: its file is on a file system that can be frozen, which then is a
/// device that answers reads and completes no write.
#[derive(Debug)]
pub(super) struct Disk {
    inside: Inside,
    /// File of the loop device.
    image: PathBuf,
    /// Where it is mounted.
    pub(super) at: PathBuf,
    /// Where the file system is mounted that holds the file, for a stacked one.
    lower: Option<PathBuf>,
    /// Root of the frozen file system, opened before: it can be thawed when the node is gone.
    frozen: Option<fs::File>,
    slow: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Disk {
    /// Makes a disk below `dir` and mounts it at `at`.
    pub(super) fn make(inside: Inside, dir: &Path, at: &Path, mib: u32, stacked: bool) -> Self {
        let mut disk =
            Self { inside, image: dir.join("disk.img"), at: at.to_owned(), lower: None, frozen: None, slow: None };
        if stacked {
            let (image, lower) = (dir.join("lower.img"), dir.join("lower"));
            disk.format(&image, mib + 64);
            disk.mount(&image, &lower);
            disk.image = lower.join("disk.img");
            disk.lower = Some(lower);
        }
        disk.format(&disk.image, mib);
        disk.mount(&disk.image, &disk.at);
        disk
    }

    fn format(&self, image: &Path, mib: u32) {
        let image = image.to_string_lossy().into_owned();
        self.run("truncate", &["-s", &format!("{mib}M"), &image]);
        // Without reserved blocks: full means full, also for root.
        self.run("mkfs.ext4", &["-q", "-F", "-m", "0", &image]);
    }

    fn mount(&self, image: &Path, at: &Path) {
        fs::create_dir_all(at).expect("a mount point");
        self.run("mount", &["-o", "loop", &image.to_string_lossy(), &at.to_string_lossy()]);
        self.run("chmod", &["0711", &at.to_string_lossy()]);
    }

    #[track_caller]
    fn run(&self, program: &str, args: &[&str]) {
        if let Err(error) = self.try_run(program, args) {
            panic!("{error}");
        }
    }

    fn try_run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let output = self.inside.command(program, args).stderr(Stdio::piped()).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("{program} {args:?}: {}", text.trim()))
    }

    /// No write completes until [`Disk::thaw`].
    pub(super) fn freeze(&mut self) {
        let at = self.at.clone();
        self.freeze_at(at);
    }

    /// The device below completes no write until [`Disk::thaw`].
    pub(super) fn stall(&mut self) {
        let lower = self.lower.clone().expect("a stacked disk");
        self.freeze_at(lower);
    }

    fn freeze_at(&mut self, at: PathBuf) {
        let seen = self.inside.path(&at);
        self.frozen = Some(fs::File::open(seen).expect("the root of the disk"));
        self.run("fsfreeze", &["-f", &at.to_string_lossy()]);
    }

    /// Ends [`Disk::freeze`] and [`Disk::stall`].
    pub(super) fn thaw(&mut self) {
        if let Some(root) = self.frozen.take() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd());
            let thawed = Command::new("fsfreeze").args(["-u", &path]).status();
            assert!(thawed.is_ok_and(|status| status.success()), "fsfreeze -u {path}");
        }
    }

    /// Lets writes through for a moment ten times a second.
    pub(super) fn slow_down(&mut self) {
        let over = Arc::new(AtomicBool::new(false));
        let (stopping, inside, at) = (over.clone(), self.inside, self.at.to_string_lossy().into_owned());
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                let _ = inside.command("fsfreeze", &["-f", &at]).status();
                thread::sleep(Duration::from_millis(100));
                let _ = inside.command("fsfreeze", &["-u", &at]).status();
                thread::sleep(Duration::from_millis(5));
            }
        });
        self.slow = Some((over, thread));
    }

    /// Ends [`Disk::slow_down`].
    pub(super) fn speed_up(&mut self) {
        if let Some((over, thread)) = self.slow.take() {
            over.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }

    /// Writes a file until the disk is full.
    pub(super) fn fill(&self) {
        fill(self.inside, &self.at);
    }

    /// Removes that file.
    pub(super) fn empty(&self) {
        self.run("rm", &["-f", &filler(&self.at)]);
    }

    /// Makes the file system read-only as an I/O error of its journal does; only a new mount ends it (ext4(5),
    /// `abort`).
    pub(super) fn abort(&self) {
        self.run("mount", &["-o", "remount,abort", &self.at.to_string_lossy()]);
    }

    /// Copies the disk as it is now, for [`Disk::lose_writes`].
    pub(super) fn remember(&mut self) {
        self.freeze();
        let copied = fs::copy(&self.image, self.image.with_extension("old"));
        self.thaw();
        copied.expect("a copy of the disk");
    }

    /// Unmounts the disk: an error says who holds it.
    ///
    /// # Errors
    /// `target is busy`.
    pub(super) fn unmount(&self) -> Result<(), String> {
        let mut last = Ok(());
        // What was removed just now may be released after the answer.
        for _ in 0..50 {
            last = self.try_run("umount", &[&self.at.to_string_lossy()]);
            if last.is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        last
    }

    /// Replaces the disk by what [`Disk::remember`] copied. The disk is not mounted.
    pub(super) fn lose_writes(&self) {
        fs::rename(self.image.with_extension("old"), &self.image).expect("the copy is there");
    }

    /// Checks the file system and mounts it again.
    pub(super) fn mount_again(&self) {
        // 1: errors corrected.
        let checked = self.inside.command("e2fsck", &["-p", &self.image.to_string_lossy()]).status();
        assert!(checked.is_ok_and(|status| status.code().is_some_and(|code| code <= 1)), "e2fsck of the disk");
        self.mount(&self.image, &self.at);
    }
}

impl Drop for Disk {
    /// A frozen file system outlives its mount namespace: it must not stay so.
    fn drop(&mut self) {
        self.speed_up();
        self.thaw();
    }
}

/// Fills a file system of a node.
pub(super) fn fill(inside: Inside, at: &Path) {
    let script = format!("for size in 1M 64k 4k 512; do dd if=/dev/zero bs=$size >> {}; done", filler(at));
    // It ends with ENOSPC.
    let _ = inside.command("sh", &["-c", &script]).status();
}

/// The file of [`fill`].
pub(super) fn filler(at: &Path) -> String {
    at.join("filler").to_string_lossy().into_owned()
}
