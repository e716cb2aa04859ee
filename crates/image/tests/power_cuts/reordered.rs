//! Cuts that lose and reorder writes: the disk logs what is written to it, and disks as a power cut may leave them are
//! built from the log. See [`crate::write_log`].
//!
//! The interleaving of two users of the store is random, but all cuts in one log are reproducible. So the log of a
//! failed cut is kept, and the cut can be repeated.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::fs::{Advice, fadvise};

use crate::{
    Plan,
    check::{Cut, start_again},
    disk::{Disk, another_boot, copy, make_file_system},
    fuse::LoggedDisk,
    node::Registry,
    workload::{Chance, Event, Expected, Ledger, Truth, open_store, remove_index, use_store},
    write_log::{Builder, Point, WriteLog},
};

/// A cut in a log that was kept: `DIRECTORY:NUMBER`.
const POINT: &str = "IMAGE_POWER_CUTS_POINT";
/// Number of cuts in one log.
const BATCH: usize = 40;
/// One of this many cuts is of a store whose index is rebuilt.
const REBUILDS: u64 = 5;
/// Length at which a log ends, in bytes.
const LOG_MAX: u64 = 128 << 20;
/// Most logs that are kept.
const KEPT_LOGS_MAX: usize = 3;

/// A promise of the store: length of the log at that time, whether it was a reply, and what is expected from then on.
type Promise = (u64, bool, Expected);

/// A log and its data. Its directory has the disk before (`base`) and after (`plain`), and the `log`.
struct Recording {
    dir: PathBuf,
    kind: String,
    seed: u64,
    /// Length of the log when the store was opened for the first time.
    begin: u64,
    /// Its length when the store was opened without an index.
    rebuild: u64,
    promises: Vec<Promise>,
}

impl Recording {
    /// Uses a store for a while on a new file system.
    async fn take(dir: &Path, kind: &str, (registry, truth): (&Registry, &Truth), seed: u64) -> Self {
        make_file_system(kind, &dir.join("base"));
        copy(&dir.join("base"), &dir.join("plain"));
        let logged = LoggedDisk::serve(dir);
        let disk = Disk::for_store(&logged.file(), kind, &dir.join("mounted"));
        let log = logged.log();
        let length = || log.metadata().unwrap().len();
        let begin = length();
        let promises: Mutex<Vec<Promise>> = Mutex::default();
        let record = |event, expected: &Expected| {
            promises.lock().unwrap().push((length(), event == Event::Replied, expected.clone()));
        };
        let mut chance = Chance(seed ^ 0xabcd_0000);
        let limit = Duration::from_millis(400 + chance.below(800));
        let enough = async {
            let start = Instant::now();
            while start.elapsed() < limit && length() < LOG_MAX {
                tokio::time::sleep(Duration::from_millis(chance.below(60))).await;
                let (store, seed) = (disk.mounted.join("store"), chance.below(1 << 32));
                tokio::task::spawn_blocking(move || write_back(&store, &mut Chance(seed + 1))).await.unwrap();
            }
        };
        use_store(&disk.mounted, (registry, truth), seed, &Ledger::new(&record), enough).await;
        remove_index(&disk.mounted);
        let rebuild = length();
        drop(open_store(&disk.mounted));
        drop(disk);
        drop(logged);
        let promises = promises.into_inner().unwrap();
        Self { dir: dir.to_owned(), kind: kind.to_owned(), seed, begin, rebuild, promises }
    }

    fn log(&self) -> WriteLog {
        WriteLog::read(&self.dir.join("log"))
    }

    /// Returns the cut with a number, which is the same for the same log.
    fn point(&self, log: &WriteLog, number: u64) -> Point {
        let rebuilds = number % REBUILDS == REBUILDS - 1;
        let begin = log.entries_within(if rebuilds { self.rebuild } else { self.begin });
        let answers = self.promises.iter().filter(|(_, is_answer, _)| *is_answer);
        let answers = answers.map(|(length, _, _)| log.entries_within(*length)).filter(|entries| *entries >= begin);
        let answers: Vec<usize> = answers.collect();
        let mut chance = Chance((self.seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        log.choose(begin, &answers, &mut chance)
    }

    fn cut(&self, log: &WriteLog, number: u64, point: &Point) -> Cut {
        let before = self.promises.iter().take_while(|(length, _, _)| log.entries_within(*length) <= point.entries);
        Cut {
            file: self.dir.join("cut"),
            point: format!("{}, cut {number}: {}", self.kind, log.describe(point)),
            expected: before.last().map(|(_, _, expected)| expected.clone()).unwrap_or_default(),
        }
    }

    /// Tries the cuts with these numbers. Returns those that failed.
    async fn try_all(&self, numbers: &[u64], truth: &Arc<Truth>) -> Vec<u64> {
        let log = self.log();
        let mut points: Vec<(u64, Point)> = numbers.iter().map(|number| (*number, self.point(&log, *number))).collect();
        points.sort_by_key(|(_, point)| point.flushed);
        let mut builder = Builder::new(&log, &self.dir.join("base"), self.dir.join("flushed"));
        let mut failed = Vec::new();
        for (number, point) in &points {
            let cut = self.cut(&log, *number, point);
            builder.build(point, &cut.file);
            let (dir, kind, truth) = (self.dir.clone(), self.kind.clone(), truth.clone());
            let outcome = tokio::spawn(async move { start_again(&dir, &kind, &cut, &truth).await }).await;
            if outcome.is_err() {
                failed.push(*number);
            }
        }
        if self.dir.join("plain").exists() {
            builder.finish(&self.dir.join("plain"));
        }
        failed
    }

    /// Copies the files from which the cuts of this log are built to a directory that is kept. Returns it.
    fn keep(&self) -> PathBuf {
        let kept_dir = PathBuf::from(format!("/var/tmp/pinion-power-cuts-{}-{}", self.kind, self.seed));
        fs::create_dir_all(&kept_dir).unwrap();
        copy(&self.dir.join("base"), &kept_dir.join("base"));
        fs::copy(self.dir.join("log"), kept_dir.join("log")).unwrap();
        let rest = (&self.kind, self.seed, self.begin, self.rebuild, &self.promises);
        fs::write(kept_dir.join("promises.json"), serde_json::to_vec(&rest).unwrap()).unwrap();
        kept_dir
    }

    /// Copies a kept log to another directory for use.
    fn reuse(kept_dir: &Path, dir: &Path) -> Self {
        copy(&kept_dir.join("base"), &dir.join("base"));
        fs::copy(kept_dir.join("log"), dir.join("log")).unwrap();
        let rest = fs::read(kept_dir.join("promises.json")).unwrap();
        let (kind, seed, begin, rebuild, promises) = serde_json::from_slice(&rest).unwrap();
        Self { dir: dir.to_owned(), kind, seed, begin, rebuild, promises }
    }
}

/// Starts writing some files to the disk without a flush, as the kernel does after a while.
fn write_back(dir: &Path, chance: &mut Chance) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => write_back(&entry.path(), chance),
            Ok(kind) if kind.is_file() && chance.below(3) == 0 => {
                let _ = fs::File::open(entry.path()).map(|file| fadvise(&file, 0, None, Advice::DontNeed));
            }
            _ => {}
        }
    }
}

/// Repeats a cut of a kept log.
async fn repeat(point: &str, truth: &Arc<Truth>) {
    let (kept_dir, number) = point.rsplit_once(':').expect("DIRECTORY:NUMBER");
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let recording = Recording::reuse(Path::new(kept_dir), dir.path());
    let _boot = another_boot(dir.path(), 1);
    let failed = recording.try_all(&[number.parse().unwrap()], truth).await;
    assert!(failed.is_empty(), "power cuts: {point} fails");
    println!("power cuts: {point} is clean");
}

/// Tries the planned number of cuts on one file system, in logs whose seeds start with `seed`. Returns how to repeat
/// those that failed.
async fn campaign(plan: &Plan, kind: &str, mut seed: u64, registry: &Registry, truth: &Arc<Truth>) -> Vec<String> {
    let (mut tried, mut failed, mut kept_logs) = (0, Vec::new(), 0);
    while tried < plan.count && !plan.is_over() && kept_logs < KEPT_LOGS_MAX {
        // In memory, because a sync of the device must cost nothing.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let recording = Recording::take(dir.path(), kind, (registry, truth), seed).await;
        let _boot = another_boot(dir.path(), tried + 1);
        let numbers: Vec<u64> = (0..BATCH.min(plan.count - tried)).map(|number| number as u64).collect();
        let bad = recording.try_all(&numbers, truth).await;
        tried += numbers.len();
        seed += 1;
        if !bad.is_empty() {
            let place = recording.keep();
            failed.extend(bad.iter().map(|number| format!("{}:{number}", place.display())));
            kept_logs += 1;
        }
    }
    println!("power cuts with reordered writes: {tried} on {kind}, {} failed", failed.len());
    failed
}

/// Not a test: see `in_namespaces`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    let Some(plan) = Plan::of_child(5, "ext4 xfs btrfs") else { return };
    let truth = Arc::new(Truth::new());
    if let Ok(point) = std::env::var(POINT) {
        return repeat(&point, &truth).await;
    }
    println!("power cuts with reordered writes: {} on each of {}, seed {}", plan.count, plan.kinds, plan.seed);
    let registry = Registry::start();
    let mut failed = Vec::new();
    for (kind, place) in plan.kinds.split_whitespace().zip(1..) {
        failed.extend(campaign(&plan, kind, plan.seed + place * 100_000, &registry, &truth).await);
    }
    let again: String =
        failed.iter().map(|point| format!("\n  tests/campaign/run power-cuts --point {point}")).collect();
    assert!(failed.is_empty(), "power cuts: {} failed; repeat them with:{again}", failed.len());
}
