//! What is on record about a sandbox.

use std::{path::PathBuf, sync::Arc};

use network::Attachment;
use serde::{Deserialize, Serialize};

use super::config::SandboxConfig;
use crate::{CgroupDriver, CgroupNames, SandboxId, store::timeline::Timeline};

/// Contents of `metadata.json`: what never changes after creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxMetadata {
    pub(crate) id: SandboxId,
    pub(crate) config: Arc<SandboxConfig>,
    pub(crate) created_at: u64,
    /// The driver of its cgroups, which decides their names. Older daemons had only cgroupfs.
    #[serde(default)]
    pub(crate) cgroup_driver: CgroupDriver,
    #[serde(default)]
    pub(crate) cgroup_names: CgroupNames,
    /// Whether it is restored from a checkpoint, so that it has containers before it is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) restored: bool,
}

/// Phase of a sandbox's lifecycle (drawn in the module `sandbox`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SandboxPhase {
    Reserved,
    Networked,
    Ready,
    Stopped,
}

impl SandboxPhase {
    /// Reports whether the sandbox has never been ready.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Reserved | Self::Networked)
    }
}

/// Contents of `status.json`: what changes during the sandbox's lifetime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) phase: SandboxPhase,
    /// The current stage in words, for people.
    pub(crate) stage: String,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) attachment: Option<Attachment>,
    /// Whether it got a resolver when it joined a named network while it was running.
    #[serde(default)]
    pub(crate) has_resolver: bool,
    /// Limits of the pod after the last update; `None` means those of the original request.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// Overhead after the last update; `None` means that of the original request.
    #[serde(default)]
    pub(crate) overhead: Option<oci::Resources>,
    /// Whether a checkpoint of it is in progress: its virtual machine may be paused, and its containers frozen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) checkpointing: bool,
    /// Whether its restore from a checkpoint was completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) restored: bool,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// Why its record is missing or unreadable; absent if the record is intact.
    #[serde(default)]
    pub(crate) broken: Option<String>,
}

impl SandboxRecord {
    /// Returns the record of a new sandbox, of which nothing has been created.
    pub(crate) fn reserved() -> Self {
        let mut record = Self {
            phase: SandboxPhase::Reserved,
            stage: String::new(),
            netns: None,
            attachment: None,
            has_resolver: false,
            resources: None,
            overhead: None,
            checkpointing: false,
            restored: false,
            timeline: Timeline::default(),
            broken: None,
        };
        record.enter("reserved");
        record
    }

    /// Enters a stage, and records the time in the timeline.
    pub(crate) fn enter(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
        self.timeline.enter(stage);
    }
}
