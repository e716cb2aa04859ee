//! A real registry, and images that the tests make.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use std::{
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

pub mod server;

use image::{Digest, Registries, Store};
use serde_json::{Value, json};
use testbed::wait_until;

/// Time limit of what happens in the background.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Debian's registry on its own loopback port, which ends when this is dropped.
pub struct Registry {
    _server: testbed::Registry,
    pub address: String,
    pub dir: tempfile::TempDir,
    client: reqwest::Client,
}

impl Registry {
    pub fn start() -> Self {
        Self::with(None, "")
    }

    /// Starts a registry that serves the data of another one, with more lines of configuration (`tls:` below `http:`,
    /// and what follows).
    pub fn sharing_data(other: &Self, more: &str) -> Self {
        Self::with(Some(&other.data()), more)
    }

    fn with(storage: Option<&Path>, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let storage = storage.map_or_else(|| dir.path().join("data"), Path::to_owned);
        let command = Command::new(testbed::Registry::PROGRAM);
        let server = testbed::Registry::start(command, dir.path(), &storage, &address, more);
        let client = reqwest::Client::builder().tls_certs_only([]);
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { _server: server, address, dir, client: client.build().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub async fn push_blob(&self, repository: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let url = format!("http://{}/v2/{repository}/blobs/uploads/", self.address);
        let response = self.client.post(url).send().await.unwrap().error_for_status().unwrap();
        let location = response.headers()["location"].to_str().unwrap().to_owned();
        let separator = if location.contains('?') { '&' } else { '?' };
        let put = self.client.put(format!("{location}{separator}digest={digest}")).body(bytes.to_vec());
        put.send().await.unwrap().error_for_status().unwrap();
        digest
    }

    pub async fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Digest {
        let bytes = serde_json::to_vec(manifest).unwrap();
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.address);
        let kind = manifest["mediaType"].as_str().unwrap().to_owned();
        let put = self.client.put(url).header("content-type", kind).body(bytes.clone());
        put.send().await.unwrap().error_for_status().unwrap();
        Digest::of(&bytes)
    }

    /// Pushes an image. Returns the digest of its manifest and its id.
    pub async fn push(&self, repository: &str, tag: &str, image: &TestImage) -> (Digest, Digest) {
        for layer in &image.layers {
            self.push_blob(repository, &layer.blob).await;
        }
        let config = image.config();
        let id = self.push_blob(repository, &config).await;
        (self.push_manifest(repository, tag, &image.manifest()).await, id)
    }

    /// Returns the file of a blob in the registry's own storage.
    pub fn blob_file(&self, digest: &Digest) -> PathBuf {
        testbed::Registry::blob(&self.data(), digest.hex())
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }
}

#[derive(Clone, Copy)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

#[derive(Clone)]
pub struct Layer {
    pub tar: Vec<u8>,
    pub blob: Vec<u8>,
    pub kind: &'static str,
}

#[derive(Clone)]
pub struct TestImage {
    pub layers: Vec<Layer>,
    pub architecture: String,
}

impl TestImage {
    pub fn new() -> Self {
        Self { layers: Vec::new(), architecture: image::Platform::host().architecture }
    }

    pub fn layer(mut self, tar: Vec<u8>, compression: Compression) -> Self {
        let (blob, kind) = match compression {
            Compression::None => (tar.clone(), "application/vnd.oci.image.layer.v1.tar"),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&tar).unwrap();
                (encoder.finish().unwrap(), "application/vnd.oci.image.layer.v1.tar+gzip")
            }
            Compression::Zstd => {
                (zstd::encode_all(&tar[..], 1).unwrap(), "application/vnd.oci.image.layer.v1.tar+zstd")
            }
        };
        self.layers.push(Layer { tar, blob, kind });
        self
    }

    pub fn config(&self) -> Vec<u8> {
        let diff_ids: Vec<_> = self.layers.iter().map(|layer| Digest::of(&layer.tar)).collect();
        let config = json!({
            "architecture": self.architecture, "os": "linux", "created": "2026-01-02T03:04:05Z",
            "config": {"Env": ["A=b"], "Cmd": ["/bin/sh"], "Labels": {"k": "v"}, "Volumes": null, "User": "1000"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        serde_json::to_vec(&config).unwrap()
    }

    pub fn manifest(&self) -> Value {
        let config = self.config();
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|layer| json!({"mediaType": layer.kind, "digest": Digest::of(&layer.blob), "size": layer.blob.len()}))
            .collect();
        json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": Digest::of(&config), "size": config.len(),
            },
            "layers": layers,
        })
    }
}

/// A tar archive that is built entry by entry, including entries that no honest tool writes.
pub struct Tar(pub tar::Builder<Vec<u8>>);

impl Tar {
    pub fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        header.set_size(0);
        header
    }

    /// Appends an entry with its name unchanged, whatever it is.
    fn put(mut self, mut header: tar::Header, path: &str, link: &str, body: &[u8]) -> Self {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..path.len()].copy_from_slice(path.as_bytes());
        gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_size(body.len() as u64);
        header.set_cksum();
        self.0.append(&header, body).unwrap();
        self
    }

    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.put(Self::header(tar::EntryType::Directory, mode), path, "", b"")
    }

    pub fn file(self, path: &str, mode: u32, body: &[u8]) -> Self {
        self.put(Self::header(tar::EntryType::Regular, mode), path, "", body)
    }

    pub fn owned(self, path: &str, mode: u32, owner: (u64, u64), body: &[u8]) -> Self {
        let mut header = Self::header(tar::EntryType::Regular, mode);
        header.set_uid(owner.0);
        header.set_gid(owner.1);
        self.put(header, path, "", body)
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.put(Self::header(tar::EntryType::Symlink, 0o777), path, target, b"")
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.put(Self::header(tar::EntryType::Link, 0o644), path, target, b"")
    }

    pub fn node(self, path: &str, kind: tar::EntryType, device: (u32, u32)) -> Self {
        let mut header = Self::header(kind, 0o600);
        header.set_device_major(device.0).unwrap();
        header.set_device_minor(device.1).unwrap();
        self.put(header, path, "", b"")
    }

    /// Adds PAX records for the next entry.
    pub fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    pub fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Returns a small image with a shell.
pub fn busybox() -> TestImage {
    let tar = Tar::new()
        .dir("bin/", 0o755)
        .file("bin/busybox", 0o755, &testbed::busybox())
        .symlink("bin/sh", "busybox")
        .done();
    TestImage::new().layer(tar, Compression::Gzip)
}

pub fn open(dir: &Path) -> Store {
    Store::open(dir, Registries::default()).unwrap()
}

/// Returns the paths of everything below a directory, sorted.
pub fn tree(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, base: &Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            all.push(path.strip_prefix(base).unwrap().display().to_string());
            if path.symlink_metadata().unwrap().is_dir() {
                walk(&path, base, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(dir, dir, &mut all);
    all.sort();
    all
}

/// Returns a tar archive of an OCI layout with this one image, which is named `name` in it.
pub fn archive(image: &TestImage, name: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes).unwrap();
    };
    let (config, manifest) = (image.config(), serde_json::to_vec(&image.manifest()).unwrap());
    let blobs = image.layers.iter().map(|layer| &layer.blob).chain([&config, &manifest]);
    blobs.for_each(|blob| add(&format!("blobs/sha256/{}", Digest::of(blob).hex()), blob));
    let index = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": image.manifest()["mediaType"], "digest": Digest::of(&manifest), "size": manifest.len(),
        "annotations": {"io.containerd.image.name": name},
    }]});
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    add("index.json", &serde_json::to_vec(&index).unwrap());
    tar.into_inner().unwrap()
}

/// Returns an image of two layers with twenty files each, which depend on `seed`.
pub fn two_layers(seed: u8) -> TestImage {
    let layer = |layer: u8| {
        let mut tar = Tar::new().dir("d", 0o755);
        for file in 0..20_u8 {
            tar = tar.file(&format!("d/{seed}-{layer}-{file}"), 0o644, &[seed ^ layer ^ file; 3000]);
        }
        tar.done()
    };
    TestImage::new().layer(layer(1), Compression::Gzip).layer(layer(2), Compression::Zstd)
}

/// Returns the directories of an image's layers, lowest first.
pub fn layer_dirs(dir: &Path, image: &TestImage) -> Vec<PathBuf> {
    let mut parent: Option<Digest> = None;
    let dirs = image.layers.iter().map(|layer| {
        let chain = Digest::chain(parent.as_ref(), &Digest::of(&layer.tar));
        parent = Some(chain.clone());
        dir.join("layers").join(chain.hex())
    });
    dirs.collect()
}

/// Returns the file of a layer's blob.
pub fn blob_file(dir: &Path, image: &TestImage, layer: usize) -> PathBuf {
    dir.join("content/blobs/sha256").join(Digest::of(&image.layers[layer].blob).hex())
}

/// Changes one byte of a file, but neither its length nor its time.
pub fn flip(path: &Path) {
    use std::os::unix::fs::FileExt;
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1000).unwrap();
    file.write_all_at(&[!byte[0]], 1000).unwrap();
    file.set_modified(modified).unwrap();
}

/// Imports the image under this name.
pub async fn load(store: &Store, image: &TestImage, name: &str) -> image::Image {
    store.import(&mut &archive(image, name)[..]).await.unwrap().remove(0).image
}

/// Waits until everything removed is deleted: a store that is closed leaves that to the next opening.
pub fn until_deleted(dir: &Path) {
    wait_until("everything removed is deleted", PATIENCE, || {
        std::fs::read_dir(dir.join("tmp")).unwrap().next().is_none()
    });
}

/// Changes what the index has about its last opening.
pub fn set_meta(dir: &Path, values: &[(&str, &str)]) {
    let db = redb::Database::open(dir.join("index.redb")).unwrap();
    let write = db.begin_write().unwrap();
    let table = redb::TableDefinition::<&str, &str>::new("meta");
    for (key, value) in values {
        write.open_table(table).unwrap().insert(*key, *value).unwrap();
    }
    write.commit().unwrap();
}

/// Changes a closed store to one that lost its power in an earlier boot.
pub fn unclean_boot(dir: &Path) {
    set_meta(dir, &[("boot", "another"), ("closed", "no")]);
}
