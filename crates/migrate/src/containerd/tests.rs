use std::fs;

use ring::digest::{SHA256, digest};

use super::*;
use crate::bolt::tests::{Node, data, write};

#[test]
fn integers_are_those_of_go() {
    let values = [&[0u8][..], &[2], &[0x80, 0x08], &[0xd8, 0x04]].map(varint);
    assert_eq!(values, [Some(0), Some(1), Some(512), Some(300)]);
    assert_eq!([&[][..], &[1], &[0x80; 11]].map(varint), [None, None, None]);
}

/// A root directory of containerd.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir_all(root.blobs()).expect("made");
        root
    }

    fn blobs(&self) -> std::path::PathBuf {
        self.0.path().join("io.containerd.content.v1.content/blobs/sha256")
    }

    fn blob(&self, bytes: &[u8]) -> serde_json::Value {
        let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(self.blobs().join(&hex), bytes).expect("written");
        serde_json::json!({"mediaType": "m", "digest": format!("sha256:{hex}"), "size": bytes.len()})
    }

    fn manifest(&self, layers: &[&[u8]]) -> serde_json::Value {
        let layers: Vec<_> = layers.iter().map(|bytes| self.blob(bytes)).collect();
        let manifest = serde_json::json!({"schemaVersion": 2, "config": self.blob(b"{}"), "layers": layers});
        self.blob(manifest.to_string().as_bytes())
    }

    /// Writes `meta.db` with these images, and a pod.
    fn database(&self, images: &[(&str, &serde_json::Value)]) {
        let image = |(name, target): &(&str, &serde_json::Value)| {
            let size = target["size"].as_u64().expect("a size");
            let varint =
                if size < 64 { vec![(size << 1) as u8] } else { vec![(size << 1) as u8 | 0x80, (size >> 6) as u8] };
            let fields = vec![
                data("digest", target["digest"].as_str().expect("text").as_bytes()),
                data("mediatype", b"m"),
                data("size", &varint),
            ];
            let target = ("target".into(), Node::Inline(fields));
            (name.as_bytes().to_vec(), Node::Bucket(vec![data("createdat", b"x"), target]))
        };
        let images = images.iter().map(image).collect();
        let labels = |kind: &str| {
            Node::Inline(vec![
                data("io.cri-containerd.kind", kind.as_bytes()),
                data("io.kubernetes.pod.name", b"web"),
                data("io.kubernetes.pod.namespace", b"default"),
            ])
        };
        let runtime = || ("runtime".into(), Node::Inline(vec![data("name", b"io.containerd.runc.v2")]));
        let container = |kind: &str| Node::Bucket(vec![("labels".into(), labels(kind)), runtime()]);
        let containers = vec![("c1".into(), container("sandbox")), ("c2".into(), container("container"))];
        let namespace = vec![("containers".into(), Node::Bucket(containers)), ("images".into(), Node::Bucket(images))];
        let v1 = vec![data("version", &[2]), ("k8s.io".into(), Node::Bucket(namespace))];
        write(&self.0.path().join("io.containerd.metadata.v1.bolt/meta.db"), &[("v1".into(), Node::Bucket(v1))]);
    }

    fn read(&self) -> (Vec<StoredImage>, Vec<Pod>) {
        read(self.0.path(), "k8s.io").expect("read")
    }
}

#[test]
fn names_of_one_image_are_one_archive() {
    let root = Root::new();
    let target = root.manifest(&[b"layer one", b"layer two"]);
    let digest = target["digest"].as_str().expect("text").to_owned();
    let pinned = format!("docker.io/library/a@{digest}");
    root.database(&[("docker.io/library/a:1", &target), (&pinned, &target), ("sha256:0123", &target)]);
    let (images, pods) = root.read();
    assert_eq!(images.len(), 1);
    assert_eq!(
        (images[0].names.as_slice(), &images[0].id),
        (["docker.io/library/a:1".to_owned(), pinned].as_slice(), &digest)
    );
    let archive = images[0].archive.as_ref().expect("complete");
    assert_eq!(archive.blobs().count(), 4, "manifest, configuration, two layers");
    let mut bytes = Vec::new();
    archive.write(&mut bytes).expect("written");
    assert!(bytes.len() % 512 == 0 && bytes.windows(9).any(|window| window == b"layer two"));
    let pod = Pod {
        namespace: "default".into(),
        name: "web".into(),
        containers: 1,
        runtimes: vec!["io.containerd.runc.v2".into()],
    };
    assert_eq!(pods, [pod]);
}

#[test]
fn an_index_needs_one_complete_image() {
    let root = Root::new();
    let own = root.manifest(&[b"own platform"]);
    let other = serde_json::json!({"mediaType": "m", "digest": format!("sha256:{:064}", 1), "size": 5});
    let index = root.blob(serde_json::json!({"manifests": [other, own]}).to_string().as_bytes());
    let empty = root.blob(serde_json::json!({"manifests": [other]}).to_string().as_bytes());
    root.database(&[("a:1", &index), ("b:1", &empty)]);
    let (images, _) = root.read();
    let find = |name: &str| images.iter().find(|image| image.names == [name]).expect("listed");
    assert_eq!(find("a:1").archive.as_ref().expect("complete").blobs().count(), 4);
    let reason = find("b:1").archive.as_ref().expect_err("incomplete");
    assert!(reason.contains("is not in the content store"), "{reason}");
}

#[test]
fn layers_that_were_discarded_or_changed_are_reported() {
    let root = Root::new();
    let target = root.manifest(&[b"discarded"]);
    let layer: String = digest(&SHA256, b"discarded").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    root.database(&[("a:1", &target)]);
    let archive = root.read().0.remove(0).archive.expect("complete");
    fs::write(root.blobs().join(&layer), "longer than before").expect("written");
    assert!(archive.write(&mut Vec::new()).is_err(), "it changed in the meantime");
    assert!(root.read().0[0].archive.is_err());
    fs::remove_file(root.blobs().join(&layer)).expect("removed");
    assert!(root.read().0[0].archive.is_err());
    std::os::unix::fs::symlink("/etc/hostname", root.blobs().join(&layer)).expect("linked");
    assert!(root.read().0[0].archive.is_err());
}

#[test]
fn hostile_digests_and_nested_indexes_are_reported() {
    let root = Root::new();
    let target = |digest: &str| serde_json::json!({"digest": digest, "size": 3});
    let nested = (0..6).fold(root.manifest(&[b"x"]), |inner, _| {
        root.blob(serde_json::json!({"manifests": [inner]}).to_string().as_bytes())
    });
    let escape = target("sha256:../../../../etc/passwd");
    root.database(&[("a:1", &escape), ("b:1", &target("")), ("c:1", &nested)]);
    let (images, _) = root.read();
    assert!(images.len() == 3 && images.iter().all(|image| image.archive.is_err()), "{images:?}");
}

#[test]
fn a_missing_or_foreign_database_is_an_error() {
    let root = Root::new();
    assert!(read(root.0.path(), "k8s.io").is_err());
    let path = root.0.path().join("io.containerd.metadata.v1.bolt/meta.db");
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(&path, "not a database").expect("written");
    assert!(read(root.0.path(), "k8s.io").is_err());
    root.database(&[]);
    assert!(read(root.0.path(), "other").expect("read").0.is_empty());
}
