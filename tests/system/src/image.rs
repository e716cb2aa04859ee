use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Node, Outcome, wait_until};

/// Debian's docker-registry inside a node, on 127.0.0.1:5000 of the node's network namespace.
pub struct Registry {
    server: Child,
    /// The OCI layout of the demonstration image.
    pub layout: PathBuf,
}

impl Registry {
    /// Starts the registry and pushes the demonstration image as `127.0.0.1:5000/demo:1`.
    pub fn start(node: &Node) -> Self {
        let dir = node.dir.path().join("registry");
        fs::create_dir(&dir).expect("create the directory of the registry");
        let config = dir.join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}/data}}\nhttp:\n  addr: 127.0.0.1:5000\n",
            dir.display()
        );
        fs::write(&config, text).expect("write the configuration of the registry");
        let log = fs::File::create(dir.join("log")).expect("create the log of the registry");
        let server = node
            .command("docker-registry")
            .arg("serve")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start docker-registry; scripts/setup test installs it");
        wait_until("the registry answers", || node.run("curl", &["-fsS", "http://127.0.0.1:5000/v2/"]).code == Some(0));
        make_image(&dir, "127.0.0.1:5000/demo:1");
        let registry = Self { server, layout: dir.join("layout") };
        registry.push(node, "demo", "1");
        registry
    }

    /// Pushes the layout under another name.
    pub fn push(&self, node: &Node, repository: &str, tag: &str) {
        let script = script("push-image");
        Outcome::of(node.command(script).arg(&self.layout).args(["127.0.0.1:5000", repository, tag])).ok();
    }

    /// Returns the file that contains the data of a blob, for tests that damage it.
    pub fn blob(&self, node: &Node, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
        node.dir.path().join("registry/data/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data")
    }

    /// Stops the registry.
    pub fn stop(&mut self, node: &Node) {
        node.kill(&node.process("docker-registry"));
        let _ = self.server.wait();
    }
}

impl Node {
    /// Loads the demonstration image (`docker.io/library/demo:1`) without a registry.
    pub fn load_image(&self) {
        let dir = self.dir.path().join("image");
        fs::create_dir_all(&dir).expect("create the directory of the image");
        make_image(&dir, "docker.io/library/demo:1");
        self.pinion(&["load", "-i", dir.join("image.tar").to_str().expect("UTF-8")]).ok();
    }
}

fn make_image(dir: &Path, name: &str) {
    Outcome::of(Command::new(script("make-image")).arg(dir).arg(name)).ok();
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}
