//! Pulls with settings of hosts in the layouts of containerd and Docker, over TLS with our own certificates.

mod node;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use image::{ErrorKind, Registries, Store};
use node::{Registry, busybox};

/// A certificate authority, and the files that it signed: `<name>.crt`, `<name>.key`.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Self(dir);
        authority.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt");
        authority
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

    fn openssl(&self, arguments: &str) {
        let out = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .output()
            .expect("openssl is needed");
        assert!(out.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns lines for the configuration of a registry.
    fn tls(&self, clients: bool) -> String {
        let (crt, key) = (self.path("server.crt"), self.path("server.key"));
        let mut text = format!("  tls:\n    certificate: {}\n    key: {}\n", crt.display(), key.display());
        if clients {
            text += &format!("    clientcas:\n      - {}\n", self.path("ca.crt").display());
        }
        text
    }
}

/// Returns a store whose directory of settings is `certs`, and that directory.
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

/// Returns an address on which no process listens.
fn unused_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified_presented_and_read_again() {
    let (plain, dir, ours, theirs) =
        (Registry::start(), tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    for name in ["server", "client"] {
        ours.sign(name);
    }
    plain.push("a/b", "1", &busybox()).await;
    let secret = Registry::sharing_data(&plain, &ours.tls(true));
    let (store, certs) = store(dir.path());
    let name = format!("{}/a/b:1", secret.address);
    let directory = certs.join(&secret.address);
    // Docker's layout, at first with an authority that signed none of the certificates.
    fs::create_dir(&directory).unwrap();
    fs::copy(theirs.path("ca.crt"), directory.join("ca.crt")).unwrap();
    let error = store.pull(&name, None, None).await.unwrap_err();
    assert!(error.message.contains("certificate"), "{error}");
    // The right authority, but no client certificate.
    fs::copy(ours.path("ca.crt"), directory.join("ca.crt")).unwrap();
    let error = store.pull(&name, None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    fs::copy(ours.path("client.crt"), directory.join("node.cert")).unwrap();
    fs::copy(ours.path("client.key"), directory.join("node.key")).unwrap();
    store.pull(&name, None, None).await.unwrap();
    store.remove(&name).await.unwrap();
    // containerd's layout takes precedence in the same directory.
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
async fn mirrors_are_tried_in_order_with_their_headers_and_capabilities() {
    let (plain, dir, ours) = (Registry::start(), tempfile::tempdir().unwrap(), Authority::new());
    ours.sign("server");
    plain.push("library/b", "1", &busybox()).await;
    // Accepts every request with a header of authorization.
    let guarded = Registry::sharing_data(
        &plain,
        &(ours.tls(false) + "auth:\n  silly:\n    realm: https://127.0.0.1:1/\n    service: s\n"),
    );
    let (store, certs) = store(dir.path());
    let text = |capabilities: &str, header: &str| {
        format!(
            "server = \"http://{server}\"\n[host.\"https://{dead}\"]\n[host.\"https://{mirror}\"]\nca = {ca:?}\n{capabilities}\n{header}\n",
            server = unused_address(),
            dead = unused_address(),
            mirror = guarded.address,
            ca = ours.path("ca.crt"),
        )
    };
    let header = format!("[host.\"https://{}\".header]\nauthorization = \"Basic eDp5\"", guarded.address);
    // Without the header the mirror refuses, and no other endpoint responds.
    hosts(&certs, "registry.example", &text("", ""));
    let error = store.pull("registry.example/library/b:1", None, None).await.unwrap_err();
    assert_eq!(error.message.matches("; then ").count(), 2, "the errors of all endpoints: {error}");
    hosts(&certs, "registry.example", &text("", &header));
    let image = store.pull("registry.example/library/b:1", None, None).await.unwrap();
    assert_eq!(image.repo_tags, ["registry.example/library/b:1"], "the name that was requested");
    let digest = image.repo_digests[0].clone();
    store.remove(&digest).await.unwrap();
    // A mirror that may not resolve tags serves what a digest names.
    hosts(&certs, "registry.example", &text("capabilities = [\"pull\"]", &header));
    let error = store.pull("registry.example/library/b:1", None, None).await.unwrap_err();
    assert!(!error.message.contains(&guarded.address), "{error}");
    store.pull(&digest, None, None).await.unwrap();
    store.remove(&digest).await.unwrap();
    // The default directory, with its own path and without verification of the server.
    fs::remove_dir_all(certs.join("registry.example")).unwrap();
    let open = Registry::sharing_data(&plain, &ours.tls(false));
    let text = format!("[host.\"https://{}/v2/library\"]\noverride_path = true\nskip_verify = true\n", open.address);
    hosts(&certs, "_default", &text);
    store.pull("another.example/b:1", None, None).await.unwrap();
    // An invalid file is named, and stops only pulls from its host.
    hosts(&certs, "third.example", "[host.x]\nca = 3\n");
    let error = store.pull("third.example/b:1", None, None).await.unwrap_err();
    assert!(error.message.contains("third.example/hosts.toml:2: host.\"x\".ca: a string is expected"), "{error}");
    store.pull("fourth.example/b:1", None, None).await.unwrap();
}
