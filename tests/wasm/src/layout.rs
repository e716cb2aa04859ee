//! OCI layouts of images with a module.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What a layout contains.
#[derive(Debug)]
pub struct Layout {
    config_type: &'static str,
    config: Value,
    layer_type: &'static str,
    layer: Vec<u8>,
    annotations: Value,
}

/// Returns the layout of an artifact: its only layer is the module.
#[must_use]
pub fn artifact(module: &[u8]) -> Layout {
    Layout {
        config_type: "application/vnd.wasm.config.v0+json",
        config: json!({"architecture": "wasm", "os": "wasip1", "layerDigests": [digest(module)]}),
        layer_type: "application/wasm",
        layer: module.to_vec(),
        annotations: json!({}),
    }
}

/// Returns the layout of an ordinary image with the module `/app.wasm`, annotated as `variant` unless that is empty.
#[must_use]
pub fn compat(module: &[u8], variant: &str) -> Layout {
    let directory = tempfile("app.wasm", module);
    fs::create_dir(directory.join("etc")).expect("a directory");
    fs::write(directory.join("etc/greeting"), "hello from a file\n").expect("a file");
    let tar = Command::new("tar").arg("-C").arg(&directory).args(["-c", "app.wasm", "etc"]).output().expect("tar");
    fs::remove_dir_all(&directory).expect("remove");
    Layout {
        config_type: "application/vnd.oci.image.config.v1+json",
        config: json!({
            "architecture": "amd64", "os": "linux",
            "config": {"Entrypoint": ["/app.wasm"], "Env": ["FROM=image"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&tar.stdout)]},
        }),
        layer_type: "application/vnd.oci.image.layer.v1.tar",
        layer: tar.stdout,
        annotations: if variant.is_empty() { json!({}) } else { json!({"module.wasm.image/variant": variant}) },
    }
}

fn tempfile(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("pinion-test-layer-{}-{}", std::process::id(), digest(bytes)));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join(name), bytes).expect("a file");
    directory
}

impl Layout {
    /// Writes the layout to a new directory. `name` is the reference of the image.
    pub fn write(&self, directory: &Path, name: &str) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("the directory of blobs");
        let put = |bytes: &[u8]| {
            let digest = digest(bytes);
            fs::write(blobs.join(digest.trim_start_matches("sha256:")), bytes).expect("a blob");
            (digest, bytes.len())
        };
        let (layer, layer_size) = put(&self.layer);
        let (config, config_size) = put(self.config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": self.config_type, "digest": config, "size": config_size},
            "layers": [{"mediaType": self.layer_type, "digest": layer, "size": layer_size}],
            "annotations": self.annotations,
        });
        let (manifest, manifest_size) = put(manifest.to_string().as_bytes());
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": manifest_size,
                "annotations": {"io.containerd.image.name": name},
            }],
        });
        fs::write(directory.join("index.json"), index.to_string()).expect("the index");
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("the layout");
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
