use std::{fs, path::PathBuf};

use testbed::{checkout, make_image};

use crate::{Node, Outcome};

/// Where the registry listens in the network namespace of its node.
const ADDRESS: &str = "127.0.0.1:5000";

/// Debian's docker-registry inside a node, on 127.0.0.1:5000 of the node's network namespace.
pub struct Registry {
    server: testbed::Registry,
    /// The OCI layout of the demonstration image.
    pub layout: PathBuf,
}

impl Registry {
    /// Starts the registry and pushes the demonstration image as `127.0.0.1:5000/demo:1`.
    pub fn start(node: &Node) -> Self {
        let dir = node.dir.path().join("registry");
        fs::create_dir(&dir).expect("create the directory of the registry");
        let command = node.command(testbed::Registry::PROGRAM);
        let server = testbed::Registry::start(command, &dir, &Self::data(node), ADDRESS, "");
        make_image(&dir, &format!("{ADDRESS}/demo:1"));
        let registry = Self { server, layout: dir.join("layout") };
        registry.push(node, "demo", "1");
        registry
    }

    fn data(node: &Node) -> PathBuf {
        node.dir.path().join("registry/data")
    }

    /// Pushes the layout under another name.
    pub fn push(&self, node: &Node, repository: &str, tag: &str) {
        let script = checkout("scripts/push-image");
        Outcome::of(node.command(script).arg(&self.layout).args([ADDRESS, repository, tag])).ok();
    }

    /// Starts another registry with the same data on another address of the node; `more` are lines of the section `http`
    /// of its configuration.
    pub fn serve_data(&self, node: &Node, address: &str, more: &str) -> testbed::Registry {
        let dir = node.dir.path().join(address);
        fs::create_dir(&dir).expect("create the directory of the registry");
        let command = node.command(testbed::Registry::PROGRAM);
        testbed::Registry::start(command, &dir, &Self::data(node), address, more)
    }

    /// Returns the file that contains the data of a blob, for tests that damage it.
    pub fn blob(&self, node: &Node, digest: &str) -> PathBuf {
        testbed::Registry::blob(&Self::data(node), digest)
    }

    /// Stops the registry.
    pub fn stop(&mut self, node: &Node) {
        node.kill(&node.process(testbed::Registry::PROGRAM));
        self.server.wait();
    }
}

impl Node {
    /// Loads the demonstration image (`docker.io/library/demo:1`) without a registry.
    pub fn load_image(&self) {
        // The scripts of the checkout are not on every machine that tests run on.
        if let Some(archive) = std::env::var_os("PINION_TEST_IMAGE") {
            self.pinion(&["load", "-i", archive.to_str().expect("UTF-8")]).ok();
            return;
        }
        let dir = self.dir.path().join("image");
        fs::create_dir_all(&dir).expect("create the directory of the image");
        make_image(&dir, "docker.io/library/demo:1");
        self.pinion(&["load", "-i", dir.join("image.tar").to_str().expect("UTF-8")]).ok();
    }
}
