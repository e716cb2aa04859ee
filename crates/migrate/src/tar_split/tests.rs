use std::{fs, os::unix::fs::symlink};

use flate2::{Compression, write::GzEncoder};

use super::*;

struct Layer {
    dir: tempfile::TempDir,
}

impl Layer {
    fn new(parts: &[serde_json::Value]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("diff")).expect("made");
        let file = File::create(dir.path().join("split.gz")).expect("created");
        let mut gzip = GzEncoder::new(file, Compression::fast());
        for part in parts {
            writeln!(gzip, "{part}").expect("written");
        }
        gzip.finish().expect("finished");
        Self { dir }
    }

    fn open(&self) -> Result<TarSplit, Error> {
        TarSplit::open(self.dir.path().join("split.gz"), self.dir.path().join("diff"))
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        let layer = self.open()?;
        let mut bytes = Vec::new();
        layer.write(&mut bytes)?;
        assert_eq!(bytes.len() as u64, layer.size());
        Ok(bytes)
    }
}

fn segment(bytes: &[u8]) -> serde_json::Value {
    serde_json::json!({"type": 2, "payload": STANDARD.encode(bytes), "position": 0})
}

fn contents(name: &str, size: u64) -> serde_json::Value {
    serde_json::json!({"type": 1, "name": name, "size": size, "payload": "AAAAAAAAAAA=", "position": 1})
}

#[test]
fn an_archive_is_put_together_byte_by_byte() {
    let raw = serde_json::json!({"type": 1, "name_raw": STANDARD.encode(b"\xff"), "size": 1, "payload": ""});
    let layer = Layer::new(&[segment(b"head"), contents("./a/b", 5), segment(b"pad"), contents("empty", 0), raw]);
    fs::create_dir(layer.dir.path().join("diff/a")).expect("made");
    fs::write(layer.dir.path().join("diff/a/b"), "hello").expect("written");
    use std::os::unix::ffi::OsStrExt;
    fs::write(layer.dir.path().join("diff").join(std::ffi::OsStr::from_bytes(b"\xff")), "x").expect("written");
    assert_eq!(layer.bytes().expect("complete"), b"headhellopadx");
}

#[test]
fn a_device_in_place_of_a_file_is_not_opened() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let layer = Layer::new(&[contents("null", 1)]);
    let path = layer.dir.path().join("diff/null");
    // A FIFO blocks a process that opens it; a device needs root.
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, makedev(0, 0)).expect("a FIFO");
    let error = layer.bytes().expect_err("not a file").to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn files_outside_of_the_layer_are_never_read() {
    for name in ["../secret", "/../secret", "a/../../secret", "link", "dir/secret"] {
        let layer = Layer::new(&[contents(name, 6)]);
        fs::write(layer.dir.path().join("secret"), "secret").expect("written");
        symlink("../secret", layer.dir.path().join("diff/link")).expect("linked");
        symlink("..", layer.dir.path().join("diff/dir")).expect("linked");
        assert!(layer.bytes().is_err(), "{name}");
    }
}

#[test]
fn other_sizes_and_damaged_metadata_are_errors() {
    for size in [4, 6] {
        let layer = Layer::new(&[contents("f", size)]);
        fs::write(layer.dir.path().join("diff/f"), "12345").expect("written");
        assert!(layer.bytes().is_err(), "{size}");
    }
    assert!(Layer::new(&[serde_json::json!({"type": 3})]).open().is_err());
    assert!(Layer::new(&[contents("f", u64::MAX), contents("f", u64::MAX)]).open().is_err());
    let layer = Layer::new(&[]);
    fs::write(layer.dir.path().join("split.gz"), b"no gzip").expect("written");
    assert!(layer.open().is_err());
}
