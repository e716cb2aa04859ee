//! Pulls by containerd's and Docker's settings of hosts, over TLS with certificates of our own.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use image::{ErrorKind, Registries, Store};
use support::{Registry, busybox};

/// An authority, and what it signed: `<name>.crt`, `<name>.key`.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = Self(dir);
        made.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt");
        made
    }

    fn sign(&self, name: &str) {
        fs::write(self.path("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.crt"
        ));
    }

    fn openssl(&self, words: &str) {
        let out =
            Command::new("openssl").args(words.split(' ')).current_dir(&self.0).output().expect("openssl is needed");
        assert!(out.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&out.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Lines of a registry's configuration.
    fn tls(&self, clients: bool) -> String {
        let (crt, key) = (self.path("server.crt"), self.path("server.key"));
        let mut text = format!("  tls:\n    certificate: {}\n    key: {}\n", crt.display(), key.display());
        if clients {
            text += &format!("    clientcas:\n      - {}\n", self.path("ca.crt").display());
        }
        text
    }
}

/// A store that looks in `certs`, and that directory.
fn store(dir: &Path) -> (Store, PathBuf) {
    let certs = dir.join("certs");
    fs::create_dir(&certs).unwrap();
    let registries = Registries { config_dir: Some(certs.clone()), ..Registries::default() };
    (Store::open(&dir.join("store"), registries).unwrap(), certs)
}

fn hosts(certs: &Path, host: &str, text: &str) -> PathBuf {
    fs::create_dir_all(certs.join(host)).unwrap();
    fs::write(certs.join(host).join("hosts.toml"), text).unwrap();
    certs.join(host)
}

/// An address where nobody listens.
fn nobody() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_asked_for_shown_and_read_again() {
    let (plain, dir, ours, theirs) =
        (Registry::start(), tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    for name in ["server", "client"] {
        ours.sign(name);
    }
    plain.push("a/b", "1", &busybox()).await;
    let secret = Registry::beside(&plain, &ours.tls(true));
    let (store, certs) = store(dir.path());
    let name = format!("{}/a/b:1", secret.address);
    let directory = certs.join(&secret.address);
    // Docker's layout; at first with an authority that signed nothing here.
    fs::create_dir(&directory).unwrap();
    fs::copy(theirs.path("ca.crt"), directory.join("ca.crt")).unwrap();
    let error = store.pull(&name, None, None).await.unwrap_err();
    assert!(error.message.contains("certificate"), "{error}");
    // The right one, and nothing of ours to show.
    fs::copy(ours.path("ca.crt"), directory.join("ca.crt")).unwrap();
    let error = store.pull(&name, None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    fs::copy(ours.path("client.crt"), directory.join("node.cert")).unwrap();
    fs::copy(ours.path("client.key"), directory.join("node.key")).unwrap();
    store.pull(&name, None, None).await.unwrap();
    store.remove(&name).await.unwrap();
    // containerd's layout goes before it in the same directory.
    let text =
        format!("server = \"https://{}\"\nca = \"ca.crt\"\nclient = [[\"node.cert\", \"node.key\"]]\n", secret.address);
    hosts(&certs, &secret.address, &text);
    store.pull(&name, None, None).await.unwrap();
    store.remove(&name).await.unwrap();
    hosts(&certs, &secret.address, &text.replace("ca.crt", "gone.crt"));
    let error = store.pull(&name, None, None).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("gone.crt"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_asked_in_order_with_their_headers_and_what_they_may() {
    let (plain, dir, ours) = (Registry::start(), tempfile::tempdir().unwrap(), Authority::new());
    ours.sign("server");
    plain.push("library/b", "1", &busybox()).await;
    // Lets in whoever brings any header of authorization.
    let guarded = Registry::beside(
        &plain,
        &(ours.tls(false) + "auth:\n  silly:\n    realm: https://127.0.0.1:1/\n    service: s\n"),
    );
    let (store, certs) = store(dir.path());
    let text = |capabilities: &str, header: &str| {
        format!(
            "server = \"http://{server}\"\n[host.\"https://{dead}\"]\n[host.\"https://{mirror}\"]\nca = {ca:?}\n{capabilities}\n{header}\n",
            server = nobody(),
            dead = nobody(),
            mirror = guarded.address,
            ca = ours.path("ca.crt"),
        )
    };
    let header = format!("[host.\"https://{}\".header]\nauthorization = \"Basic eDp5\"", guarded.address);
    // Without the header the mirror refuses, and nobody else answers.
    hosts(&certs, "registry.example", &text("", ""));
    let error = store.pull("registry.example/library/b:1", None, None).await.unwrap_err();
    assert_eq!(error.message.matches("; then ").count(), 2, "each is told: {error}");
    hosts(&certs, "registry.example", &text("", &header));
    let image = store.pull("registry.example/library/b:1", None, None).await.unwrap();
    assert_eq!(image.repo_tags, ["registry.example/library/b:1"], "the name that was asked for");
    let digest = image.repo_digests[0].clone();
    store.remove(&digest).await.unwrap();
    // A mirror that may not say what a tag means gives what a digest names.
    hosts(&certs, "registry.example", &text("capabilities = [\"pull\"]", &header));
    let error = store.pull("registry.example/library/b:1", None, None).await.unwrap_err();
    assert!(!error.message.contains(&guarded.address), "{error}");
    store.pull(&digest, None, None).await.unwrap();
    store.remove(&digest).await.unwrap();
    // The default, a path of its own, and no word about who answers.
    fs::remove_dir_all(certs.join("registry.example")).unwrap();
    let open = Registry::beside(&plain, &ours.tls(false));
    let text = format!("[host.\"https://{}/v2/library\"]\noverride_path = true\nskip_verify = true\n", open.address);
    hosts(&certs, "_default", &text);
    store.pull("another.example/b:1", None, None).await.unwrap();
    // A wrong file is named, and stops pulls of its host alone.
    hosts(&certs, "third.example", "[host.x]\nca = 3\n");
    let error = store.pull("third.example/b:1", None, None).await.unwrap_err();
    assert!(error.message.contains("third.example/hosts.toml:2: host.\"x\".ca: a text is expected"), "{error}");
    store.pull("fourth.example/b:1", None, None).await.unwrap();
}
