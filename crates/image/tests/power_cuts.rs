//! Power cuts: the store lies on a file system on a loop device, whose backing file is copied at each sync, rename and answer
//! and at random moments. Such a copy is what a machine finds after its power was cut then: every block that was written to
//! the device, and nothing that was still in memory. Each is mounted, and the store in it opened:
//!
//! - the opening never fails;
//! - what was answered is listed, and what was removed is not;
//! - every file of every listed image is what it was made as;
//! - nothing has to be repaired, and a second opening changes nothing.
//!
//! `make test` tries a few on ext4. `tests/campaign/power-cuts` tries many on ext4, xfs and btrfs:
//! `IMAGE_POWER_CUTS` is their number on each, `IMAGE_POWER_CUTS_FS` the file systems, `IMAGE_POWER_CUTS_SEED` repeats a run,
//! `PINION_CAMPAIGN_SECONDS` ends it after so long.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use image::{Digest, Registries, Store};
use support::{Compression, Registry, Tar, TestImage, archive, tree};

const CUTS: &str = "IMAGE_POWER_CUTS";
const CHILD: &str = "IMAGE_POWER_CUTS_CHILD";
/// Copies that are kept before they are looked at.
const BATCH: usize = 40;
/// Copies of a run that names no number.
const SHORT: u64 = 20;
/// Copies of a store whose index is rebuilt, of each batch.
const REBUILDS: usize = 6;
const FILES: u8 = 12;

/// What each name may mean: the ids of images, or nothing.
type Expected = BTreeMap<String, BTreeSet<Option<String>>>;

/// A copy of the disk.
struct Cut {
    file: PathBuf,
    point: &'static str,
    expected: Expected,
}

#[derive(Default)]
struct Recorder {
    backing: PathBuf,
    wanted: usize,
    /// Points that are passed before the first copy: the store is to be in use for a while.
    skip: u64,
    /// `loop3`
    device: String,
    expected: Expected,
    cuts: Vec<Cut>,
    taken: usize,
    /// Copies that the kernel wrote into meanwhile.
    discarded: usize,
}

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|cause| panic!("{program} is needed: {cause}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Numbers that depend on a seed only (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

/// Writes that reached the device, or `None` while some are on their way.
fn writes(device: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
    let fields: Vec<String> = stat.split_whitespace().map(str::to_owned).collect();
    (fields[8] == "0").then(|| [4, 6, 11].map(|field| fields[field].clone()).to_vec())
}

/// Copies the disk as it is now.
fn cut(point: &'static str) {
    let mut guard = recorder();
    let Some(recorder) = guard.as_mut().filter(|recorder| recorder.cuts.len() < recorder.wanted) else {
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
            run("cp", &["--sparse=always", text(&recorder.backing), text(&file)]);
            if writes(&recorder.device) == before {
                recorder.taken += 1;
                recorder.cuts.push(Cut { file, point, expected: recorder.expected.clone() });
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    recorder.discarded += 1;
}

/// A file system on a loop device, mounted.
struct Disk {
    device: String,
    mounted: PathBuf,
}

impl Disk {
    fn attach(backing: &Path, kind: &str, at: &Path) -> Self {
        let device = run("losetup", &["--find", "--show", text(backing)]);
        fs::create_dir_all(at).unwrap();
        // Copies of one file system have one UUID.
        let options = if kind == "xfs" { "nouuid" } else { "defaults" };
        run("mount", &["-t", kind, "-o", options, &device, text(at)]);
        Self { device, mounted: at.to_owned() }
    }

    fn name(&self) -> String {
        self.device.trim_start_matches("/dev/").to_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A thread of the store may look at it for the last time.
        let unmount = || Command::new("umount").arg(&self.mounted).output().is_ok_and(|done| done.status.success());
        let _ = (0..100).any(|_| {
            unmount() || {
                std::thread::sleep(Duration::from_millis(50));
                false
            }
        });
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

fn make_file_system(kind: &str, backing: &Path) {
    let (size, args): (u64, &[&str]) = match kind {
        "ext4" => (96 << 20, &["-q", "-F"]),
        "xfs" => (320 << 20, &["-q", "-f"]),
        "btrfs" => (160 << 20, &["-q", "-f", "--mixed"]),
        other => panic!("{other}"),
    };
    let new = backing.with_extension("new");
    fs::File::create(&new).unwrap().set_len(size).unwrap();
    run(&format!("mkfs.{kind}"), &[args, &[text(&new)]].concat());
    run("cp", &["--sparse=always", text(&new), text(backing)]);
    fs::remove_file(&new).unwrap();
}

/// The image of a number: a layer that others share, and one of its own.
fn image(number: u64) -> TestImage {
    let layer = |seed: u64| {
        let mut tar = Tar::new().dir("d", 0o755);
        for file in 0..FILES {
            tar = tar.file(&format!("d/{seed}-{file}"), 0o644, &content(seed, file));
        }
        tar.symlink("l", "d").done()
    };
    TestImage::new().layer(layer(1000 + number % 3), Compression::Gzip).layer(layer(number), Compression::Gzip)
}

/// Images by id, and the files of layers by number: what the disk is compared with.
struct Truth {
    images: BTreeMap<String, (u64, TestImage)>,
    files: BTreeMap<(u64, u8), Vec<u8>>,
}

impl Truth {
    fn new() -> Self {
        let numbers = [1, 2].into_iter().flat_map(|worker| (0..6).map(move |n| worker * 100 + n));
        let images: BTreeMap<String, (u64, TestImage)> = numbers
            .map(|number| (number, image(number)))
            .map(|(number, image)| (id(&image), (number, image)))
            .collect();
        let seeds = images.values().map(|(number, _)| *number).chain(1000..1003);
        let files = seeds.flat_map(|seed| (0..FILES).map(move |file| ((seed, file), content(seed, file)))).collect();
        Self { images, files }
    }
}

fn content(seed: u64, file: u8) -> Vec<u8> {
    let mut chance = Chance(seed * 251 + u64::from(file) + 1);
    let length = chance.below(20_000) + 1;
    (0..length).map(|_| chance.below(256) as u8).collect()
}

fn id(image: &TestImage) -> String {
    Digest::of(&image.config()).to_string()
}

/// One of the programs that use the store at the same time; its images and names are its own.
async fn work(store: &Store, registry: &Registry, worker: u64, mut chance: Chance, done: &AtomicBool) {
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        let number = worker * 100 + chance.below(6);
        let (repository, tag) = (format!("w{worker}"), chance.below(3).to_string());
        let name = registry.name(&format!("{repository}:{tag}"));
        let image = image(number);
        match chance.below(4) {
            0 if known.contains_key(&name) => {
                // With all of its names.
                let number = known[&name];
                let names: Vec<String> =
                    known.iter().filter(|(_, n)| **n == number).map(|(name, _)| name.clone()).collect();
                allow(&names, None);
                store.remove(&name).await.unwrap();
                known.retain(|name, _| !names.contains(name));
                answer(&names, None);
            }
            1 => {
                registry.push(&repository, &tag, &image).await;
                allow(std::slice::from_ref(&name), Some(id(&image)));
                store.pull(&name, None, None).await.unwrap();
                known.insert(name.clone(), number);
                answer(&[name], Some(id(&image)));
            }
            _ => {
                allow(std::slice::from_ref(&name), Some(id(&image)));
                store.import(&mut &archive(&image, &name)[..]).await.unwrap();
                known.insert(name.clone(), number);
                answer(&[name], Some(id(&image)));
            }
        }
    }
}

/// From now on the names may mean this, too.
fn allow(names: &[String], meaning: Option<String>) {
    let mut guard = recorder();
    let expected = &mut guard.as_mut().unwrap().expected;
    for name in names {
        expected.entry(name.clone()).or_insert_with(|| BTreeSet::from([None])).insert(meaning.clone());
    }
}

/// The caller was answered: the names mean this and nothing else.
fn answer(names: &[String], meaning: Option<String>) {
    {
        let mut guard = recorder();
        let expected = &mut guard.as_mut().unwrap().expected;
        expected.extend(names.iter().map(|name| (name.clone(), BTreeSet::from([meaning.clone()]))));
    }
    cut("answered");
}

/// Takes one batch of copies of a new file system in use.
async fn record(dir: &Path, kind: &str, registry: &Registry, seed: u64, wanted: usize) -> (Vec<Cut>, usize) {
    let backing = dir.join("disk");
    make_file_system(kind, &backing);
    let disk = Disk::attach(&backing, kind, &dir.join("mounted"));
    // The names of its directories are on disk; everything else is the store's to put there.
    fs::create_dir(disk.mounted.join("store")).unwrap();
    run("sync", &["--file-system", text(&disk.mounted)]);
    *recorder() = Some(Recorder {
        backing: backing.clone(),
        wanted,
        skip: Chance(seed | 1).below(400),
        device: disk.name(),
        ..Recorder::default()
    });
    let store = Store::open(&disk.mounted.join("store"), Registries::default()).unwrap();
    let done = AtomicBool::new(false);
    let enough = async {
        let began = Instant::now();
        let mut chance = Chance(seed ^ 0xabcd);
        while recorder().as_ref().unwrap().cuts.len() < wanted && began.elapsed() < Duration::from_secs(120) {
            tokio::time::sleep(Duration::from_millis(chance.below(120))).await;
            tokio::task::spawn_blocking(|| cut("a random moment")).await.unwrap();
        }
        done.store(true, Ordering::Relaxed);
    };
    let worker = |number| work(&store, registry, number, Chance(seed * 7 + number), &done);
    tokio::join!(worker(1), worker(2), enough);
    drop(store);
    rebuild_index(&disk.mounted);
    let recorder = recorder().take().unwrap();
    drop(disk);
    fs::remove_file(&backing).unwrap();
    (recorder.cuts, recorder.discarded)
}

/// Opens the store without its index, with copies of the disk from the first moment on.
fn rebuild_index(mounted: &Path) {
    fs::remove_file(mounted.join("store/index.redb")).unwrap();
    run("sync", &["--file-system", text(mounted)]);
    if let Some(recorder) = recorder().as_mut() {
        recorder.skip = 0;
        recorder.wanted = recorder.cuts.len() + REBUILDS;
    }
    drop(Store::open(&mounted.join("store"), Registries::default()).unwrap());
}

/// Everything in the store but the files that change at each opening, with lengths.
fn listing(store: &Path) -> Vec<(String, u64)> {
    let own = ["index.redb", "lock", "format", "reserve"];
    let paths = tree(store).into_iter().filter(|path| !own.contains(&path.as_str()));
    paths.map(|path| (path.clone(), store.join(&path).symlink_metadata().unwrap().len())).collect()
}

/// Names and ids of what is listed, after a look at every file of it.
fn check(store: &Store, cut: &Cut, truth: &Truth) -> BTreeSet<(String, String)> {
    let mut listed = BTreeSet::new();
    for known in store.list() {
        listed.extend(known.repo_tags.iter().map(|tag| (tag.clone(), known.id.clone())));
        let (number, image) = &truth.images[&known.id];
        let mut parent: Option<Digest> = None;
        for (layer, seed) in image.layers.iter().zip([1000 + number % 3, *number]) {
            let chain = Digest::chain(parent.as_ref(), &Digest::of(&layer.tar));
            let dir = store.root().join("layers").join(chain.hex());
            for file in 0..FILES {
                let path = dir.join(format!("d/{seed}-{file}"));
                let found =
                    fs::read(&path).unwrap_or_else(|cause| panic!("{}: {}: {cause}", cut.point, path.display()));
                assert!(found == truth.files[&(seed, file)], "{}: {} is damaged", cut.point, path.display());
            }
            assert_eq!(tree(&dir).len(), usize::from(FILES) + 2, "{}", cut.point);
            let blob = store.root().join("content/blobs/sha256").join(Digest::of(&layer.blob).hex());
            assert!(fs::read(&blob).unwrap() == layer.blob, "{}: {} is damaged", cut.point, blob.display());
            parent = Some(chain);
        }
    }
    for (name, meanings) in &cut.expected {
        let found = listed.iter().find(|(known, _)| known == name).map(|(_, id)| id.clone());
        assert!(meanings.contains(&found), "after {}: {name} is {found:?}, must be one of {meanings:?}", cut.point);
    }
    listed
}

/// The machine starts again from a copy.
async fn start_again(dir: &Path, kind: &str, cut: &Cut, truth: &Truth) {
    let disk = Disk::attach(&cut.file, kind, &dir.join("again"));
    let path = disk.mounted.join("store");
    let open = || Store::open(&path, Registries::default()).unwrap_or_else(|error| panic!("{}: {error}", cut.point));
    let store = open();
    let listed = check(&store, cut, truth);
    assert!(store.repair().await.unwrap(), "{}: something had to be repaired", cut.point);
    assert_eq!(check(&store, cut, truth), listed, "{}", cut.point);
    support::until_deleted(&path);
    drop(store);
    let first = listing(&path);
    let store = open();
    assert_eq!(check(&store, cut, truth), listed, "{}: the second opening", cut.point);
    support::until_deleted(&path);
    drop(store);
    assert_eq!(listing(&path), first, "{}: the second opening changed something", cut.point);
    drop(disk);
    fs::remove_file(&cut.file).unwrap();
}

/// Makes the kernel show another boot id in this mount namespace, or its own again.
fn another_boot(dir: &Path, number: usize) -> impl Drop {
    struct Shown;
    impl Drop for Shown {
        fn drop(&mut self) {
            run("umount", &["/proc/sys/kernel/random/boot_id"]);
        }
    }
    let file = dir.join("boot_id");
    fs::write(&file, format!("00000000-0000-0000-0000-{number:012}\n")).unwrap();
    run("mount", &["--bind", text(&file), "/proc/sys/kernel/random/boot_id"]);
    Shown
}

/// Not a test of its own: runs in a mount namespace of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let wanted = usize::try_from(number(CUTS).unwrap_or(SHORT)).unwrap();
    let kinds = std::env::var("IMAGE_POWER_CUTS_FS").unwrap_or_else(|_| "ext4".into());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let seed = number("IMAGE_POWER_CUTS_SEED").unwrap_or(now);
    let deadline = number("PINION_CAMPAIGN_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    println!("power cuts: {wanted} on each of {kinds}, seed {seed}");
    image::observe(cut);
    let truth = Truth::new();
    let registry = Registry::start();
    // In memory: a sync of the device is one of its backing file, which is to cost nothing.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, place) in kinds.split_whitespace().zip(1..) {
        let (mut tried, mut discarded) = (0, 0);
        for batch in 0.. {
            if tried >= wanted || deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            let (cuts, torn) =
                record(dir.path(), kind, &registry, seed + place * 100_000 + batch, BATCH.min(wanted - tried)).await;
            assert!(!cuts.is_empty(), "no copy could be taken");
            discarded += torn;
            let _boot = another_boot(dir.path(), tried + 1);
            for cut in &cuts {
                start_again(dir.path(), kind, cut, &truth).await;
                *points.entry(cut.point).or_default() += 1;
                tried += 1;
            }
        }
        println!("power cuts: {tried} on {kind}: 0 lost, 0 broken; {discarded} copies discarded");
    }
    println!("power cuts: {points:?}");
}

#[test]
fn what_was_answered_survives_a_power_cut() {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(exe).args(["--exact", "child", "--nocapture"]);
    let status = command.env(CHILD, "yes").status().expect("unshare is needed: apt install util-linux");
    assert!(status.success());
}
