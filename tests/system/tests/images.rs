//! Images in all formats of registries and archives: pull, run, save, load and removal.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use system_tests::{Node, Options, Registry, wait_until};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Returns the manifest of the demonstration image in the registry.
fn manifest(registry: &Registry) -> Value {
    let index = read(&registry.layout.join("index.json"));
    read(&blob(registry, index["manifests"][0]["digest"].as_str().unwrap()))
}

fn blob(registry: &Registry, digest: &str) -> PathBuf {
    registry.layout.join("blobs/sha256").join(digest.strip_prefix("sha256:").unwrap())
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Uploads a manifest with this media type to the repository `demo`. Returns its descriptor.
fn put_manifest(node: &Node, tag: &str, kind: &str, manifest: &Value) -> Value {
    let file = node.file(&format!("manifest-{tag}"), manifest);
    let header = format!("Content-Type: {kind}");
    let url = format!("http://127.0.0.1:5000/v2/demo/manifests/{tag}");
    node.run("curl", &["-fsS", "-X", "PUT", "-H", &header, "--data-binary", &format!("@{file}"), &url]).ok();
    descriptor(node, kind, Path::new(&file))
}

fn descriptor(node: &Node, kind: &str, file: &Path) -> Value {
    let sum = node.run("sha256sum", &[file.to_str().unwrap()]).ok();
    let digest = format!("sha256:{}", sum.split_whitespace().next().unwrap());
    json!({"mediaType": kind, "digest": digest, "size": fs::metadata(file).unwrap().len()})
}

/// Uploads a blob to the repository `demo`. Returns its descriptor.
fn put_blob(node: &Node, kind: &str, file: &Path) -> Value {
    let descriptor = descriptor(node, kind, file);
    let script = format!(
        "where=$(curl -fsS -X POST -D - -o /dev/null http://127.0.0.1:5000/v2/demo/blobs/uploads/ | tr -d '\\r' | sed -n 's/^[Ll]ocation: //p') && \
         curl -fsS -X PUT -H 'Content-Type: application/octet-stream' --data-binary @{} \"$where&digest={}\"",
        file.display(),
        descriptor["digest"].as_str().unwrap()
    );
    node.run("sh", &["-c", &script]).ok();
    descriptor
}

/// Returns the architecture of this machine, and another one, in the notation of images.
fn architectures() -> (&'static str, &'static str) {
    if cfg!(target_arch = "x86_64") { ("amd64", "arm64") } else { ("arm64", "amd64") }
}

#[track_caller]
fn assert_runs(node: &Node, image: &str) {
    assert_eq!(node.pinion(&["run", "--rm", "--pull", "never", image, "echo", "it works"]).ok(), "it works");
}

fn end(node: Node) {
    assert_eq!(node.pinion(&["pods", "-q"]).ok(), "");
    for id in node.pinion(&["images", "-q"]).ok().lines() {
        node.pinion(&["rmi", "-f", id]).ok();
    }
    assert_eq!(node.pinion(&["images", "-q"]).ok(), "");
    assert_no_content(&node);
    node.end();
}

/// Checks that no blob and no layer exists: the only large files are the index and the reserve.
#[track_caller]
fn assert_no_content(node: &Node) {
    let find =
        format!("find {} -type f -size +4k ! -name index.redb ! -name reserve", node.dir.path().join("data").display());
    wait_until("there is no content", || node.run("sh", &["-c", &find]).stdout.is_empty());
}

#[test]
fn docker_manifests_lists_and_digests() {
    let node = Node::start();
    let registry = Registry::start(&node);
    let oci = manifest(&registry);
    let mut docker = oci.clone();
    docker["mediaType"] = json!(DOCKER_MANIFEST);
    docker["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
    docker["layers"][0]["mediaType"] = json!("application/vnd.docker.image.rootfs.diff.tar.gzip");
    let ours = put_manifest(&node, "schema2", DOCKER_MANIFEST, &docker);
    let id = oci["config"]["digest"].as_str().unwrap();
    assert_eq!(node.pinion(&["pull", "-q", "127.0.0.1:5000/demo:schema2"]).ok(), id);
    assert_runs(&node, "127.0.0.1:5000/demo:schema2");
    node.pinion(&["rmi", "127.0.0.1:5000/demo:schema2"]).ok();

    // An image for another architecture: only its digest differs, so that selecting it would be noticed.
    let (here, foreign) = architectures();
    docker["annotations"] = json!({"for": foreign});
    let other = put_manifest(&node, "other", DOCKER_MANIFEST, &docker);
    for (tag, kind, ours, other) in [("list", DOCKER_LIST, &ours, &other), ("index", OCI_INDEX, &ours, &other)] {
        let entry = |descriptor: &Value, architecture: &str| {
            let mut entry = descriptor.clone();
            entry["platform"] = json!({"os": "linux", "architecture": architecture});
            entry
        };
        let list =
            json!({"schemaVersion": 2, "mediaType": kind, "manifests": [entry(other, foreign), entry(ours, here)]});
        let list = put_manifest(&node, tag, kind, &list);
        let name = format!("127.0.0.1:5000/demo:{tag}");
        assert_eq!(node.pinion(&["pull", "-q", &name]).ok(), id);
        let image = node.pinion(&["inspect", &name]).json()[0].clone();
        let pinned = format!("127.0.0.1:5000/demo@{}", list["digest"].as_str().unwrap());
        assert!(image["digests"].as_array().unwrap().contains(&json!(pinned)), "{image}");
        assert_runs(&node, &name);
        node.pinion(&["rmi", "-f", id]).ok();
        // A pull by digest: the image has no tag, and can be used by that name.
        assert_eq!(node.pinion(&["pull", "-q", &pinned]).ok(), id);
        let image = node.pinion(&["images", "--json"]).json()[0].clone();
        assert_eq!((&image["tags"], &image["digests"]), (&json!([]), &json!([pinned])), "{image}");
        assert_runs(&node, &pinned);
        node.pinion(&["rmi", &pinned]).ok();
        assert_eq!(node.pinion(&["images", "-q"]).ok(), "");
        let only = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [entry(other, foreign)]});
        put_manifest(&node, &format!("{tag}-other"), kind, &only);
        let error = node.pinion(&["pull", &format!("127.0.0.1:5000/demo:{tag}-other")]).error();
        assert!(
            error.contains(here) && error.contains(foreign),
            "the error names the required and the available architecture: {error}"
        );
    }
    let unknown = format!("127.0.0.1:5000/demo@sha256:{}", "0".repeat(64));
    assert!(node.pinion(&["pull", &unknown]).error().contains(&unknown));
    end(node);
}

/// Returns a zstd frame with uncompressed content (RFC 8878: a single segment, raw blocks of up to 128 KiB).
fn zstd_frame(content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    frame.extend((content.len() as u64).to_le_bytes());
    let blocks = content.chunks(128 << 10);
    let last = blocks.len() - 1;
    for (number, block) in blocks.enumerate() {
        let header = u32::try_from(block.len() << 3).unwrap() | u32::from(number == last);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

#[test]
fn a_zstd_layer() {
    let node = Node::start();
    let registry = Registry::start(&node);
    let mut oci = manifest(&registry);
    let gzip = blob(&registry, oci["layers"][0]["digest"].as_str().unwrap());
    let (tar, file) = (node.dir.path().join("layer.tar"), node.dir.path().join("layer.tar.zst"));
    node.run("sh", &["-c", &format!("gzip -dc < {} > {}", gzip.display(), tar.display())]).ok();
    fs::write(&file, zstd_frame(&fs::read(&tar).unwrap())).unwrap();
    oci["layers"][0] = put_blob(&node, "application/vnd.oci.image.layer.v1.tar+zstd", &file);
    put_manifest(&node, "zstd", OCI_MANIFEST, &oci);
    node.pinion(&["pull", "127.0.0.1:5000/demo:zstd"]).ok();
    assert_runs(&node, "127.0.0.1:5000/demo:zstd");
    end(node);
}

#[test]
fn a_mirror_is_used_instead_of_its_registry() {
    let config = "[registries.mirrors]\n\"mirror.test\" = [\"http://127.0.0.1:1\", \"http://127.0.0.1:5000\"]\n";
    let node = Node::with(Options { config: config.to_owned(), ..Options::default() });
    let mut registry = Registry::start(&node);
    node.pinion(&["pull", "mirror.test/demo:1"]).ok();
    let image = node.pinion(&["images", "--json"]).json()[0].clone();
    assert_eq!(image["tags"], json!(["mirror.test/demo:1"]), "the image has the requested name");
    assert_runs(&node, "mirror.test/demo:1");
    registry.stop(&node);
    let error = node.pinion(&["pull", "mirror.test/demo:2"]).error();
    assert!(error.contains("mirror.test/demo:2"), "{error}");
    end(node);
}

#[test]
fn a_saved_image_is_loaded_on_another_node() {
    let (source, target) = (Node::start(), Node::start());
    source.load_image();
    let archive = source.dir.path().join("saved.tar");
    let path = archive.to_str().unwrap();
    source.pinion(&["save", "-o", path, "demo:1"]).ok();
    let image = |node: &Node| {
        let image = node.pinion(&["inspect", "demo:1"]).json()[0].clone();
        (image["id"].clone(), image["tags"].clone(), image["digests"].clone())
    };
    assert_eq!(target.pinion(&["load", "-i", path]).ok(), "loaded docker.io/library/demo:1");
    assert_eq!(image(&target), image(&source));
    assert_runs(&target, "demo:1");
    let loaded = target.pinion(&["load", "--json", "-i", path]).json();
    assert_eq!(loaded, json!(["docker.io/library/demo:1"]), "loading it again succeeds");

    let none = source.pinion(&["save", "-o", source.dir.path().join("none.tar").to_str().unwrap(), "nope:1"]);
    assert!(none.error().contains("nope:1"));
    assert!(!source.dir.path().join("none.tar").exists(), "an incomplete archive is left");
    let error = target.pinion(&["load", "-i", "/etc/passwd"]).error();
    assert!(error.contains("not an archive"), "{error}");
    let error = target.pinion(&["load", "-i", "/no/such/file"]).error();
    assert!(error.contains("/no/such/file"), "{error}");
    let truncated = source.dir.path().join("truncated.tar");
    let bytes = fs::read(&archive).unwrap();
    fs::write(&truncated, &bytes[..bytes.len() / 2]).unwrap();
    target.pinion(&["rmi", "demo:1"]).ok();
    target.pinion(&["load", "-i", truncated.to_str().unwrap()]).error();
    assert_eq!(target.pinion(&["images", "-q"]).ok(), "");
    end(source);
    end(target);
}

#[test]
fn removing_an_image_in_use_does_not_affect_its_container() {
    let node = Node::start();
    node.load_image();
    node.pinion(&["run", "-d", "--name", "user", "demo:1", "sleep", "1000"]).ok();
    let refused = node.pinion(&["rmi", "demo:1"]).error();
    assert!(refused.contains("\"user\"") && refused.contains("rmi -f demo:1"), "{refused}");
    node.pinion(&["rmi", "-f", "demo:1"]).ok();
    assert_eq!(node.pinion(&["images", "-q"]).ok(), "");
    let read = ["exec", "user", "sh", "-c", "sha256sum /bin/busybox && cat /www/index.html && echo new > /www/new"];
    assert!(node.pinion(&read).ok().contains("hello from a pod"));
    node.pinion(&["run", "--rm", "--pull", "never", "demo:1", "true"]).error();
    node.pinion(&["rm", "-f", "user"]).ok();
    // The content is removed with its last container, or by the next garbage collection.
    node.load_image();
    node.pinion(&["rmi", "demo:1"]).ok();
    assert_no_content(&node);
    node.end();
}

#[test]
fn two_names_of_one_image() {
    let node = Node::start();
    let registry = Registry::start(&node);
    registry.push(&node, "demo", "2");
    let names = ["127.0.0.1:5000/demo:1", "127.0.0.1:5000/demo:2"];
    for name in names {
        node.pinion(&["pull", name]).ok();
    }
    let images = node.pinion(&["images", "--json"]).json();
    assert_eq!((images.as_array().unwrap().len(), &images[0]["tags"]), (1, &json!(names)));
    assert_eq!(node.pinion(&["images"]).ok().lines().count(), 3, "a heading, and a line for each name");
    let archive = node.dir.path().join("both.tar");
    node.pinion(&["save", "-o", archive.to_str().unwrap(), names[0], names[1]]).ok();
    assert_runs(&node, names[0]);
    assert_runs(&node, names[1]);
    // `pinion rmi` removes one tag; RemoveImage of the CRI removes the image with all its names.
    node.pinion(&["rmi", names[1]]).ok();
    assert_eq!(node.pinion(&["images", "--json"]).json()[0]["tags"], json!([names[0]]));
    node.pinion(&["pull", names[1]]).ok();
    node.crictl(&["rmi", names[1]]).ok();
    assert_eq!(node.pinion(&["images", "-q"]).ok(), "");
    let loaded = node.pinion(&["load", "--json", "-i", archive.to_str().unwrap()]).json();
    assert_eq!(loaded, json!(names));
    end(node);
}

#[test]
fn an_image_is_listed_as_pinned_while_one_of_its_names_is_configured() {
    let config = "[images]\npinned = [\"127.0.0.1:5000/demo:1\"]\n";
    let node = Node::with(Options { config: config.to_owned(), ..Options::default() });
    let registry = Registry::start(&node);
    registry.push(&node, "demo", "2");
    let names = ["127.0.0.1:5000/demo:1", "127.0.0.1:5000/demo:2"];
    for name in names {
        node.pinion(&["pull", name]).ok();
    }
    // ListImages is what the kubelet's garbage collection reads.
    let listed = || node.crictl(&["images", "-o", "json"]).json()["images"][0].clone();
    let status = || node.crictl(&["inspecti", names[1]]).json()["status"].clone();
    assert_eq!((&listed()["repoTags"], &listed()["pinned"]), (&json!(names), &json!(true)), "{}", listed());
    assert_eq!(status()["pinned"], true, "{}", status());
    node.pinion(&["rmi", names[0]]).ok();
    assert_eq!((&listed()["repoTags"], &listed()["pinned"]), (&json!([names[1]]), &json!(false)), "{}", listed());
    assert_eq!(status()["pinned"], false, "{}", status());
    end(node);
}
