use std::path::PathBuf;

/// Number of marks of a run.
const MARKS: u64 = 100;

/// The properties of the pods of a run.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(super) image: String,
    pub(super) host_network: bool,
    /// Mark of all pods of this run.
    pub(super) run: String,
    /// An argument that no other process on the machine has, which identifies the processes of the pods.
    pub(super) mark: String,
    /// Whether the pods have the labels and annotations of a kubelet, which are most of the content of lists.
    pub(super) kubelet: bool,
}

impl Shape {
    /// Creates the shape of the pods of this run.
    pub(crate) fn new(image: &str, host_network: bool) -> Self {
        let mark = format!("{}", 1_000_000_000u64 + MARKS * u64::from(std::process::id()));
        Self { image: image.to_owned(), host_network, run: mark.clone(), mark, kubelet: false }
    }

    /// Adds the labels and annotations of a kubelet.
    pub(crate) fn with_kubelet_labels(self) -> Self {
        Self { kubelet: true, ..self }
    }

    /// Returns a shape with another mark, so that its processes can be identified. `number` must be below 100.
    pub(crate) fn marked(&self, number: u64) -> Self {
        let mark = self.mark.parse::<u64>().unwrap_or(0) + number;
        Self { mark: mark.to_string(), ..self.clone() }
    }

    /// Returns what the uids of all pods of this run begin with.
    pub(super) fn uid_prefix(&self) -> String {
        format!("bench-{}-", self.run)
    }

    /// Returns the image of the containers.
    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// Returns the mark in the command line of the processes.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns the name of the pods' network in reports: that of the host, or one of each pod.
    pub(crate) fn network(&self) -> &'static str {
        if self.host_network { "host" } else { "pod" }
    }

    /// Returns the command of the containers.
    pub(crate) fn command(&self) -> Vec<String> {
        vec!["sleep".to_owned(), self.mark.clone()]
    }

    /// Returns the log directory.
    pub(crate) fn logs(&self) -> PathBuf {
        std::env::temp_dir().join(format!("pinion-bench-{}", self.run))
    }
}
