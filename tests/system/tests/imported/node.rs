//! A node whose configuration is a translated one, and a mirror with a certificate that only the node's CA signed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use system_tests::{Node, Options, Registry};

/// Where the mirror listens, with TLS, in the network namespace of the node.
pub(super) const MIRROR: &str = "127.0.0.1:5443";

/// The files of the engines' nodes.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/imported");

pub(super) struct ImportedNode {
    pub(super) node: Node,
    _registry: Registry,
    _mirror: testbed::Registry,
}

impl ImportedNode {
    /// Creates a node with the configuration files of all engines, certificates and a mirror, and without a daemon.
    pub(super) fn new() -> Self {
        let node = Node::new(Options::default());
        let dir = node.dir.path();
        copy(Path::new(FILES), dir, &dir.display().to_string());
        let tls = certificates(&dir.join("certificates"));
        // CRI-O has the CA of a registry in a directory of its name, which is an address here.
        let ca = dir.join("crio/containers/certs.d").join(MIRROR);
        fs::create_dir_all(&ca).expect("a directory");
        fs::copy(dir.join("certificates/ca.crt"), ca.join("ca.crt")).expect("copied");
        let registry = Registry::start(&node);
        registry.push(&node, "library/demo", "1");
        let mirror = registry.serve_data(&node, MIRROR, &tls);
        Self { node, _registry: registry, _mirror: mirror }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.node.dir.path().join(name)
    }

    /// Makes the translated file the configuration of the node, after `pinion config check`. Returns the report.
    pub(super) fn import(&self, engine: &str, file: &str) -> Value {
        // The directories of this node are in a drop-in, which has precedence.
        let (config, drop_ins) = (self.node.config(), format!("{}.d", self.node.config().display()));
        fs::create_dir(&drop_ins).expect("a directory");
        fs::rename(&config, Path::new(&drop_ins).join("10-node.toml")).expect("moved");
        let (source, containers) = (self.path(file), self.path("crio/containers"));
        let [source, containers, config] = [&source, &containers, &config].map(|path| path.to_str().expect("UTF-8"));
        let import = ["--json", "config", "import", engine, source, "--containers-dir", containers, "-o", config];
        self.assert_strict(&import, config);
        let report = self.node.pinion(&import).json();
        self.node.pinion(&["config", "check", config]).ok();
        assert_eq!(fs::read_to_string(config).expect("a file"), report["configuration"].as_str().expect("a text"));
        report
    }

    /// Checks that `--strict` writes nothing if the report is not complete.
    fn assert_strict(&self, import: &[&str], config: &str) {
        let without_output = self.node.pinion(&import[..import.len() - 2]).json();
        let strict = self.node.pinion(&[import, &["--strict"]].concat());
        let is_complete = without_output["complete"] == true;
        assert_eq!((strict.code, Path::new(config).exists()), (Some(if is_complete { 0 } else { 3 }), is_complete));
        assert_eq!(strict.stdout, self.node.pinion(&import[..import.len() - 2]).stdout, "the report is the same");
        let _ = fs::remove_file(config);
    }

    /// Starts the daemon, with what differs because the node is one of a test.
    pub(super) fn start(&mut self, differences: &str) {
        let drop_in = format!("{}.d/20-test.toml", self.node.config().display());
        fs::write(drop_in, differences).expect("written");
        self.node.start_daemon();
    }
}

/// Copies a tree of files, in which `@DIR@` stands for the directory of the node.
fn copy(from: &Path, to: &Path, dir: &str) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the files of the test").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target, dir),
            false => {
                let text = fs::read_to_string(entry.path()).expect("a text");
                fs::write(target, text.replace("@DIR@", dir)).expect("written");
            }
        }
    }
}

/// Makes a CA and a certificate for 127.0.0.1. Returns the lines of a registry's configuration.
fn certificates(dir: &Path) -> String {
    fs::create_dir(dir).expect("a directory");
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("written");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for arguments in [
        format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.crt"),
        format!("req {key} -subj /CN=mirror -keyout mirror.key -out mirror.csr"),
        "x509 -req -in mirror.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out mirror.crt"
            .into(),
    ] {
        let out =
            Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().expect("openssl is needed");
        assert!(out.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let (certificate, key) = (dir.join("mirror.crt"), dir.join("mirror.key"));
    format!("  tls:\n    certificate: {}\n    key: {}\n", certificate.display(), key.display())
}
