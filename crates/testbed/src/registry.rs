use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

/// A running docker-registry, which is killed when this is dropped.
#[derive(Debug)]
pub struct Registry {
    server: Child,
}

impl Registry {
    /// The program.
    pub const PROGRAM: &str = "docker-registry";

    /// Starts the registry and waits until it listens.
    ///
    /// `command` runs [`Registry::PROGRAM`], possibly in other namespaces. The configuration is in `directory`, the
    /// data in `storage`; `more` is what follows `addr` in the section `http` of the configuration.
    pub fn start(mut command: Command, directory: &Path, storage: &Path, address: &str, more: &str) -> Self {
        let config = directory.join("config.yml");
        let text = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{more}",
            storage.display()
        );
        fs::write(&config, text).expect("write the configuration of the registry");
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = command.spawn().expect("start docker-registry; scripts/setup test installs it");
        let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
        assert!(is_ready, "docker-registry ended before it listened");
        // The messages are read, so that the registry never blocks on them.
        thread::spawn(move || lines.for_each(drop));
        Self { server }
    }

    /// Returns the file that contains the data of a blob, given its digest with or without the algorithm.
    pub fn blob(storage: &Path, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
        storage.join("docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data")
    }

    /// Waits for the exit of a registry that was killed.
    pub fn wait(&mut self) {
        let _ = self.server.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        self.wait();
    }
}
