//! Runs the fuzz targets over their seeds and random changes of the seeds.

use std::{fs, path::Path};

/// Number of changed copies of each seed.
const COPIES: u64 = 400;

/// Pseudo-random numbers (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// Changes an input as a fuzzer does: replaces, removes and duplicates bytes, and inserts parts of another seed.
    fn change(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut text = seed.to_vec();
        for _ in 0..=self.next(4) {
            let at = self.next(text.len());
            let end = (at + self.next(24)).min(text.len());
            match self.next(5) {
                0 => text.iter_mut().skip(at).take(1).for_each(|byte| *byte = self.0 as u8),
                1 => drop(text.drain(at..end)),
                2 => {
                    let piece = text[at..end].to_vec();
                    text.splice(at..at, piece);
                }
                3 => {
                    let from = self.next(other.len());
                    let piece = other[from..(from + self.next(40)).min(other.len())].to_vec();
                    text.splice(at..end, piece);
                }
                _ => {
                    // Replacing a digit with a number or a keyword keeps JSON valid.
                    if let Some(digit) = text.iter().skip(at).position(u8::is_ascii_digit) {
                        let word: &[u8] =
                            [&b"-1"[..], b"18446744073709551615", b"1e400", b"null", b"\"\""][self.next(5)];
                        text.splice(at + digit..at + digit + 1, word.iter().copied());
                    }
                }
            }
        }
        text
    }
}

fn replay(target: &str, body: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(&directory).expect("seeds").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("a seed")).collect();
    assert!(seeds.len() >= 3, "{} has {} seeds", directory.display(), seeds.len());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        body(seed);
        for _ in 0..COPIES {
            let other = &seeds[random.next(seeds.len())];
            body(&random.change(seed, other));
        }
    }
    for length in 0..COPIES as usize {
        let bytes: Vec<u8> = (0..length % 200).map(|_| random.next(256) as u8).collect();
        body(&bytes);
    }
}

#[test]
fn spec() {
    replay("spec", fuzz::spec);
}

#[test]
fn seccomp() {
    replay("seccomp", fuzz::seccomp);
}

#[test]
fn spdy() {
    replay("spdy", fuzz::spdy);
}

#[test]
fn websocket() {
    replay("websocket", fuzz::websocket);
}

#[test]
fn dns() {
    replay("dns", fuzz::dns);
}

#[test]
fn answers() {
    replay("answers", fuzz::answers);
}

#[test]
fn calls() {
    replay("calls", fuzz::calls);
}

#[test]
fn qmp() {
    replay("qmp", fuzz::qmp);
}
