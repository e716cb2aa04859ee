//! The stores of CRI-O and Docker, which keep layers unpacked: made here as both engines make them, with an archive of
//! tar(1) as the layer.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use migrate::{Source, take_inventory};
use ring::digest::{SHA256, digest};
use serde_json::json;

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, bytes).expect("written");
}

/// A layer: its archive, and the metadata of tar-split.
struct Layer {
    archive: Vec<u8>,
    metadata: Vec<u8>,
}

impl Layer {
    /// Unpacks files into `directory`, and splits the archive that tar(1) makes of them.
    fn create(directory: &Path, text: &str) -> Self {
        write(directory.join("etc/motd"), text);
        write(directory.join("bin/large"), vec![b'l'; 70_000]);
        write(directory.join("etc/.wh.gone"), "");
        std::os::unix::fs::symlink("motd", directory.join("etc/link")).expect("linked");
        let output = Command::new("tar").arg("-C").arg(directory).args(["-c", "."]).output().expect("tar runs");
        assert!(output.status.success());
        let metadata = split(&output.stdout);
        Self { archive: output.stdout, metadata }
    }
}

/// Splits an archive as tar-split does: headers and padding are segments, contents are the files'.
fn split(archive: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let (mut segment, mut at) = (Vec::new(), 0);
    while at < archive.len() {
        let header = &archive[at..at + 512];
        segment.extend_from_slice(header);
        at += 512;
        let octal = |range: std::ops::Range<usize>| {
            let text: String = header[range].iter().map(|byte| char::from(*byte)).collect();
            u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).unwrap_or(0)
        };
        let (size, kind) = (octal(124..136) as usize, header[156]);
        if kind == b'0' && size > 0 {
            let name: String =
                header[..100].iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
            let payload = STANDARD.encode(&segment);
            writeln!(gzip, "{}", json!({"type": 2, "payload": payload, "position": 0})).expect("written");
            writeln!(gzip, "{}", json!({"type": 1, "name": name, "size": size, "payload": "AA==", "position": 1}))
                .expect("written");
            let end = (at + size).next_multiple_of(512);
            segment = archive[at + size..end].to_vec();
            at = end;
        }
    }
    writeln!(gzip, "{}", json!({"type": 2, "payload": STANDARD.encode(&segment), "position": 2})).expect("written");
    gzip.finish().expect("finished")
}

/// Writes an archive and unpacks it with tar(1).
fn unpack(archive: &migrate::Archive, into: &Path) {
    let mut bytes = Vec::new();
    archive.write(&mut bytes).expect("written");
    write(into.join("all.tar"), bytes);
    let status =
        Command::new("tar").arg("-C").arg(into).arg("-xf").arg(into.join("all.tar")).status().expect("tar runs");
    assert!(status.success());
}

fn assert_is_image(archive: &migrate::Archive, tags: &[&str], config: &[u8], layers: &[&[u8]]) {
    let dir = tempfile::tempdir().expect("a directory");
    unpack(archive, dir.path());
    let read = |name: &str| fs::read(dir.path().join(name)).expect("in the archive");
    let manifest: serde_json::Value = serde_json::from_slice(&read("manifest.json")).expect("JSON");
    assert_eq!(manifest[0]["RepoTags"], json!(tags));
    assert_eq!(read("config.json"), config);
    for (number, layer) in layers.iter().enumerate() {
        assert!(read(&format!("{number}.tar")) == *layer, "layer {number} differs");
    }
}

#[test]
fn layers_of_cri_o_are_put_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    let ids = ["a", "b"].map(|letter| letter.repeat(64));
    let layers = ids.clone().map(|id| Layer::create(&root.join(format!("overlay/{id}/diff")), &id));
    for (id, layer) in ids.iter().zip(&layers) {
        write(root.join(format!("overlay-layers/{id}.tar-split.gz")), &layer.metadata);
    }
    let records = json!([{"id": ids[0]}, {"id": ids[1], "parent": ids[0]}]);
    write(root.join("overlay-layers/layers.json"), records.to_string());
    let (config, image) = (b"{\"architecture\":\"amd64\"}", "c".repeat(64));
    let key = STANDARD.encode(format!("sha256:{image}"));
    write(root.join(format!("overlay-images/{image}/={key}")), config);
    let names = ["quay.io/a/b:1", "quay.io/a/b@sha256:0"];
    let other = "d".repeat(64);
    let images = json!([
        {"id": image, "names": names, "layer": ids[1]},
        {"id": other, "names": ["quay.io/lost:1"], "layer": "e".repeat(64)},
        {"id": "../../x", "names": ["quay.io/hostile:1"], "layer": ""},
    ]);
    write(root.join("overlay-images/images.json"), images.to_string());
    let containers =
        json!([{"id": "x", "names": ["k8s_POD_web_default_u_0"]}, {"id": "y", "names": ["k8s_c_web_default_u_0"]}]);
    write(root.join("overlay-containers/containers.json"), containers.to_string());

    let inventory = take_inventory(Source::Crio, Some(root.to_owned()), None).expect("a store");
    assert_eq!((inventory.images.len(), inventory.pods.len(), inventory.pods[0].containers), (2, 1, 1));
    let archive = inventory.images[0].archive.as_ref().expect("complete");
    assert_is_image(archive, &["quay.io/a/b:1"], config, &[&layers[0].archive, &layers[1].archive]);
    let reason = inventory.images[1].archive.as_ref().expect_err("incomplete");
    assert!(reason.contains("is not in the store"), "{reason}");
}

#[test]
fn layers_of_docker_are_put_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    let database = root.join("image/overlay2");
    let layers = ["cache1", "cache2"].map(|id| Layer::create(&root.join(format!("overlay2/{id}/diff")), id));
    let diff_ids = [0, 1].map(|number| format!("sha256:{}", sha256(&layers[number].archive)));
    let chain = sha256(format!("{} {}", diff_ids[0], diff_ids[1]).as_bytes());
    let directories = [diff_ids[0].replace("sha256:", ""), chain];
    for (number, directory) in directories.iter().enumerate() {
        let directory = database.join("layerdb/sha256").join(directory);
        write(directory.join("cache-id"), ["cache1", "cache2"][number]);
        write(directory.join("tar-split.json.gz"), &layers[number].metadata);
    }
    let config = json!({"rootfs": {"type": "layers", "diff_ids": diff_ids}}).to_string();
    let id = sha256(config.as_bytes());
    write(database.join("imagedb/content/sha256").join(&id), &config);
    let names = json!({"a:1": format!("sha256:{id}"), "a@sha256:0": format!("sha256:{id}"), "b:1": "sha256:none"});
    write(database.join("repositories.json"), json!({"Repositories": {"a": names}}).to_string());
    write(root.join("containers/x/config.v2.json"), r#"{"Name": "/k8s_c_web_default_u_0"}"#);

    let inventory = take_inventory(Source::Docker, Some(root.to_owned()), None).expect("a store");
    assert_eq!((inventory.images.len(), inventory.pods.len()), (1, 1));
    let archive = inventory.images[0].archive.as_ref().expect("complete");
    assert_is_image(archive, &["a:1"], config.as_bytes(), &[&layers[0].archive, &layers[1].archive]);
    fs::write(database.join("layerdb/sha256").join(&directories[1]).join("cache-id"), "../cache1").expect("written");
    let inventory = take_inventory(Source::Docker, Some(root.to_owned()), None).expect("a store");
    assert!(inventory.images[0].archive.as_ref().is_err_and(|reason| reason.contains("not the name of a directory")));
}

#[test]
fn a_store_that_does_not_exist_is_an_error() {
    for source in [Source::Containerd, Source::Crio, Source::Docker] {
        assert!(take_inventory(source, Some("/nonexistent".into()), None).is_err(), "{source:?}");
    }
}
