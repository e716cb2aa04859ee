//! Cuts at known points: the backing file of the loop device is copied at each sync, rename and reply, and at random
//! moments. Such a copy has every block that was written to the device, and nothing that was still in memory.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::{
    Plan,
    check::{Cut, start_again},
    disk::{Disk, another_boot, copy, make_file_system},
    node::Registry,
    workload::{Chance, Event, Expected, Ledger, Truth, open_store, remove_index, use_store},
};

/// Copies that are kept before they are checked.
const BATCH: usize = 40;
/// Copies of each batch during the rebuild of the index.
const REBUILDS: usize = 6;

#[derive(Default)]
struct Recorder {
    backing: PathBuf,
    count: usize,
    /// Points to skip before the first copy, so that the store is in use for a while.
    skip: u64,
    /// `loop3`
    device: String,
    expected: Expected,
    cuts: Vec<Cut>,
    taken: usize,
    /// Copies that were discarded because the kernel wrote to the device in the meantime.
    discarded: usize,
}

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns counters of the writes that reached the device, or `None` while some are pending.
fn writes(device: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
    let fields: Vec<String> = stat.split_whitespace().map(str::to_owned).collect();
    (fields[8] == "0").then(|| [4, 6, 11].map(|field| fields[field].clone()).to_vec())
}

/// Copies the disk in its current state.
fn cut(point: &'static str) {
    let mut guard = recorder();
    let Some(recorder) = guard.as_mut().filter(|recorder| recorder.cuts.len() < recorder.count) else {
        return;
    };
    if recorder.skip > 0 {
        recorder.skip -= 1;
        return;
    }
    let file = recorder.backing.with_file_name(format!("cut-{}", recorder.taken));
    for _ in 0..10 {
        let before = writes(&recorder.device);
        if before.is_some() {
            copy(&recorder.backing, &file);
            if writes(&recorder.device) == before {
                recorder.taken += 1;
                recorder.cuts.push(Cut { file, point: point.to_owned(), expected: recorder.expected.clone() });
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    recorder.discarded += 1;
}

/// Takes one batch of copies of a new file system that is in use.
async fn record(
    dir: &Path,
    kind: &str,
    (registry, truth): (&Registry, &Truth),
    seed: u64,
    count: usize,
) -> (Vec<Cut>, usize) {
    let backing = dir.join("disk");
    make_file_system(kind, &backing);
    let disk = Disk::for_store(&backing, kind, &dir.join("mounted"));
    *recorder() = Some(Recorder {
        backing: backing.clone(),
        count,
        skip: Chance(seed | 1).below(400),
        device: disk.device.clone(),
        ..Recorder::default()
    });
    let ledger = Ledger::new(&|event, expected| {
        recorder().as_mut().unwrap().expected.clone_from(expected);
        if event == Event::Replied {
            cut("replied");
        }
    });
    let enough = async {
        let start = Instant::now();
        let mut chance = Chance(seed ^ 0xabcd);
        while recorder().as_ref().unwrap().cuts.len() < count && start.elapsed() < Duration::from_secs(120) {
            tokio::time::sleep(Duration::from_millis(chance.below(120))).await;
            tokio::task::spawn_blocking(|| cut("a random moment")).await.unwrap();
        }
    };
    use_store(&disk.mounted, (registry, truth), seed, &ledger, enough).await;
    remove_index(&disk.mounted);
    if let Some(recorder) = recorder().as_mut() {
        recorder.skip = 0;
        recorder.count = recorder.cuts.len() + REBUILDS;
    }
    drop(open_store(&disk.mounted));
    let recorder = recorder().take().unwrap();
    drop(disk);
    fs::remove_file(&backing).unwrap();
    (recorder.cuts, recorder.discarded)
}

/// Not a test: see `in_namespaces`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    let Some(plan) = Plan::of_child(20, "ext4") else { return };
    let Plan { count, kinds, seed, .. } = &plan;
    println!("power cuts: {count} on each of {kinds}, seed {seed}");
    image::observe(cut);
    let truth = Truth::new();
    let registry = Registry::start();
    // In memory, because a sync of the device syncs its backing file, which must cost nothing.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut points: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, place) in kinds.split_whitespace().zip(1..) {
        let (mut tried, mut discarded) = (0, 0);
        for batch in 0.. {
            if tried >= *count || plan.is_over() {
                break;
            }
            let (cuts, torn) =
                record(dir.path(), kind, (&registry, &truth), seed + place * 100_000 + batch, BATCH.min(count - tried))
                    .await;
            assert!(!cuts.is_empty(), "no copy could be taken");
            discarded += torn;
            let _boot = another_boot(dir.path(), tried + 1);
            for cut in &cuts {
                start_again(dir.path(), kind, cut, &truth).await;
                *points.entry(cut.point.clone()).or_default() += 1;
                tried += 1;
            }
        }
        println!("power cuts: {tried} on {kind}: 0 lost, 0 broken; {discarded} copies discarded");
    }
    println!("power cuts: {points:?}");
}
