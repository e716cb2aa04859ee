//! The users of the store before the power is cut, and what the store promised to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use image::{Digest, Registries, Store};
use testbed::run;

use crate::{
    disk::text,
    node::{Compression, Registry, Tar, TestImage, archive},
};

pub(crate) const FILES: u8 = 12;

/// The images to which each name may refer: their ids, or none.
pub(crate) type Expected = BTreeMap<String, BTreeSet<Option<String>>>;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Event {
    Requested,
    Replied,
}

/// The requests to the store, and its replies.
pub(crate) struct Ledger<'a> {
    expected: Mutex<Expected>,
    /// Called before a request and after a reply, with what is expected from then on.
    changed: &'a (dyn Fn(Event, &Expected) + Sync),
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(changed: &'a (dyn Fn(Event, &Expected) + Sync)) -> Self {
        Self { expected: Mutex::default(), changed }
    }

    /// Allows the names to refer to this image, too, from now on.
    fn allow(&self, names: &[String], meaning: Option<String>) {
        let mut expected = self.expected.lock().unwrap();
        for name in names {
            expected.entry(name.clone()).or_insert_with(|| BTreeSet::from([None])).insert(meaning.clone());
        }
        (self.changed)(Event::Requested, &expected);
    }

    /// Records a reply: from now on the names refer to this image only.
    fn answer(&self, names: &[String], meaning: Option<String>) {
        let mut expected = self.expected.lock().unwrap();
        expected.extend(names.iter().map(|name| (name.clone(), BTreeSet::from([meaning.clone()]))));
        (self.changed)(Event::Replied, &expected);
    }
}

/// Random numbers that depend only on a seed (xorshift64*).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }

    /// Returns an index of a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// Returns the image with a number: a layer that it shares with others, and its own.
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

/// Images by id, and the files of layers by number, to compare the disk with.
pub(crate) struct Truth {
    pub(crate) images: BTreeMap<String, (u64, TestImage)>,
    ids: BTreeMap<u64, String>,
    pub(crate) files: BTreeMap<(u64, u8), Vec<u8>>,
}

impl Truth {
    pub(crate) fn new() -> Self {
        let numbers = [1, 2].into_iter().flat_map(|worker| (0..6).map(move |n| worker * 100 + n));
        let images: BTreeMap<String, (u64, TestImage)> = numbers
            .map(|number| (number, image(number)))
            .map(|(number, image)| (Digest::of(&image.config()).to_string(), (number, image)))
            .collect();
        let ids = images.iter().map(|(id, (number, _))| (*number, id.clone())).collect();
        let seeds = images.values().map(|(number, _)| *number).chain(1000..1003);
        let files = seeds.flat_map(|seed| (0..FILES).map(move |file| ((seed, file), content(seed, file)))).collect();
        Self { images, ids, files }
    }
}

fn content(seed: u64, file: u8) -> Vec<u8> {
    let mut chance = Chance(seed * 251 + u64::from(file) + 1);
    let length = chance.below(20_000) + 1;
    (0..length.div_ceil(4)).flat_map(|_| chance.below(1 << 32).to_le_bytes().into_iter().take(4)).collect()
}

/// A store that is in use.
#[derive(Clone, Copy)]
struct Session<'a> {
    store: &'a Store,
    registry: &'a Registry,
    truth: &'a Truth,
    ledger: &'a Ledger<'a>,
}

pub(crate) fn open_store(mounted: &Path) -> Store {
    Store::open(&mounted.join("store"), Registries::default()).unwrap()
}

/// Removes the index, so that the next opening of the store rebuilds it.
pub(crate) fn remove_index(mounted: &Path) {
    fs::remove_file(mounted.join("store/index.redb")).unwrap();
    run("sync", &["--file-system", text(mounted)]);
}

/// Opens the store on a mounted disk, uses it until `enough` completes, and closes it.
pub(crate) async fn use_store(
    mounted: &Path,
    (registry, truth): (&Registry, &Truth),
    seed: u64,
    ledger: &Ledger<'_>,
    enough: impl Future<Output = ()>,
) {
    let store = &open_store(mounted);
    let done = AtomicBool::new(false);
    let session = Session { store, registry, truth, ledger };
    let worker = |number| work(session, number, Chance(seed * 7 + number), &done);
    let enough = async {
        enough.await;
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(worker(1), worker(2), enough);
}

/// One of the users of the store at the same time, with its own images and names.
async fn work(session: Session<'_>, worker: u64, mut chance: Chance, done: &AtomicBool) {
    let Session { store, registry, truth, ledger } = session;
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        let number = worker * 100 + chance.below(6);
        let (repository, tag) = (format!("w{worker}"), chance.below(3).to_string());
        let name = registry.name(&format!("{repository}:{tag}"));
        let id = &truth.ids[&number];
        let (_, image) = &truth.images[id];
        match chance.below(4) {
            0 if known.contains_key(&name) => {
                // With all of its names.
                let number = known[&name];
                let names: Vec<String> =
                    known.iter().filter(|(_, n)| **n == number).map(|(name, _)| name.clone()).collect();
                ledger.allow(&names, None);
                store.remove(&name).await.unwrap();
                known.retain(|name, _| !names.contains(name));
                ledger.answer(&names, None);
            }
            1 => {
                registry.push(&repository, &tag, image).await;
                ledger.allow(std::slice::from_ref(&name), Some(id.clone()));
                store.pull(&name, None, None).await.unwrap();
                known.insert(name.clone(), number);
                ledger.answer(&[name], Some(id.clone()));
            }
            _ => {
                ledger.allow(std::slice::from_ref(&name), Some(id.clone()));
                store.import(&mut &archive(image, &name)[..]).await.unwrap();
                known.insert(name.clone(), number);
                ledger.answer(&[name], Some(id.clone()));
            }
        }
    }
}
