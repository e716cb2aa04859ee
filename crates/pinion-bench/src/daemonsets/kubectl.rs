//! Commands of kubectl in the namespace of a run.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use super::manifest;
use crate::{engine::Failure, program};

/// Timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of a request that kubectl sends.
const REQUEST_TIMEOUT: &str = "--request-timeout=60s";

/// kubectl, with a namespace and a directory of this run.
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    directory: PathBuf,
}

impl Kubectl {
    /// Creates the namespace.
    pub(super) fn new(program: &Path, kubeconfig: &Path) -> Result<Self, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let namespace = format!("pinion-bench-{}-{now}", std::process::id());
        let directory = std::env::temp_dir().join(&namespace);
        let fail = |e: std::io::Error| Failure(format!("create {}: {e}", directory.display()));
        std::fs::create_dir(&directory).map_err(fail)?;
        let (program, kubeconfig) = (program.to_owned(), kubeconfig.to_owned());
        let kubectl = Self { program, kubeconfig, namespace, directory };
        kubectl.run(&["create", "namespace", &kubectl.namespace])?;
        Ok(kubectl)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]).args(words);
        command
    }

    /// Runs a command. Returns what it prints.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let name = format!("kubectl {}", words.iter().take(2).copied().collect::<Vec<_>>().join(" "));
        let output = program::output(self.command(words).arg(REQUEST_TIMEOUT), TIMEOUT);
        let output = output.map_err(|error| Failure(format!("{name}: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message").to_owned();
        Err(Failure(format!("{name}: {last}")))
    }

    /// Creates DaemonSets of one pod each on a node.
    pub(super) fn create(&self, names: &[String], node: &str, image: &str) -> Result<(), Failure> {
        let file = self.directory.join("sets.json");
        let text = manifest::list(names, node, image).to_string();
        std::fs::write(&file, text).map_err(|e| Failure(format!("write {}: {e}", file.display())))?;
        self.run(&["create", "-f", &file.to_string_lossy()]).map(drop)
    }

    /// Deletes DaemonSets; does not wait until their pods are gone.
    pub(super) fn delete(&self, names: &[String]) -> Result<(), Failure> {
        let names = names.iter().map(String::as_str);
        let words: Vec<&str> = ["delete", "daemonsets", "--wait=false"].into_iter().chain(names).collect();
        self.run(&words).map(drop)
    }

    /// Deletes all DaemonSets.
    pub(super) fn delete_all(&self) -> Result<(), Failure> {
        self.run(&["delete", "daemonsets", "--all", "--wait=false"]).map(drop)
    }

    /// Starts to watch the pods of the namespace.
    pub(super) fn watch(&self) -> Result<Child, Failure> {
        let mut command = self.command(&["get", "pods", "--watch", "--output-watch-events", "--output=json"]);
        // A signal for this process group, such as an interrupt at the terminal, is to end the run after this turn.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        command.spawn().map_err(|error| Failure(format!("kubectl get pods --watch: {error}")))
    }

    /// Returns the versions of a node's engine and kubelet.
    pub(super) fn versions(&self, node: &str) -> Result<String, Failure> {
        let path = "{.status.nodeInfo.containerRuntimeVersion}, kubelet {.status.nodeInfo.kubeletVersion}";
        self.run(&["get", "node", node, &format!("--output=jsonpath={path}")])
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        if let Err(failure) = self.run(&["delete", "namespace", &self.namespace, "--ignore-not-found", "--wait=false"])
        {
            crate::note::note(&format!("pinion-bench: {failure}; namespace {} is left over", self.namespace));
        }
        // It may hold nothing that matters.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
