//! The public interface: each method delegates to the module that implements it.

mod containers;
mod info;
mod networks;
mod sandboxes;
mod statistics;
mod status;
mod upgrade;

use std::sync::Arc;

use crate::{
    CgroupDriver, Config, Credentials, Error, Image, ImageError, PluginInfo, ProgressCallback, defaults::is_pinned,
    parts::Parts, recover, sandbox,
};

pub use info::{EngineInfo, MonitorInfo};
pub use status::EngineStatus;
pub use upgrade::MonitorUpgrade;

/// The engine. Cheap to clone. Dropping the last clone leaves containers running.
#[derive(Clone)]
pub struct Engine(Arc<Parts>);

impl Engine {
    /// Opens the engine: restores running pods and containers, connects to the monitor or starts one, and reconciles
    /// the records with the kernel. Requires a runtime with I/O and time. Makes the process a subreaper and raises its
    /// soft limit of open files.
    ///
    /// # Errors
    /// If a directory, the image store, the network or the monitor cannot be opened. A single broken record is not an
    /// error.
    pub async fn open(config: Config) -> Result<Self, Error> {
        recover::open(config).await.map(Self)
    }

    /// Removes every pod and container, the images, the built-in network, the monitor, the state and data directories,
    /// and the directory of network namespaces unless other programs have some there. No other engine may use these
    /// directories in the meantime; this engine cannot be used afterwards. With `keep_data`, images and data directory stay.
    ///
    /// # Errors
    /// The error of the first step that failed. What was removed before stays removed, and a second call continues from
    /// there.
    pub async fn reset(self, keep_data: bool) -> Result<(), Error> {
        recover::reset(self.0, keep_data).await
    }

    /// Returns the cgroup driver of new pods, which the kubelet has to use, too.
    pub fn cgroup_driver(&self) -> CgroupDriver {
        self.0.node.driver
    }

    /// Returns the image store.
    pub fn images(&self) -> &image::Store {
        &self.0.node.images
    }

    /// Whether the configuration protects an image from the kubelet's garbage collection, by one of its names.
    pub fn is_pinned(&self, image: &Image) -> bool {
        let patterns = &self.0.node.config.pinned_images;
        let mut names = image.repo_tags.iter().chain(&image.repo_digests);
        image.pinned || names.any(|name| patterns.iter().any(|pattern| is_pinned(pattern, name)))
    }

    /// Pulls an image. Concurrent pulls of it share one; `progress` receives the progress of each layer. The pull is
    /// part of the timeline of the container that is created from the image next.
    ///
    /// # Errors
    /// Those of [`image::Store::pull`].
    pub async fn pull_image(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        progress: Option<ProgressCallback>,
    ) -> Result<Image, ImageError> {
        self.0.node.pull(reference, credentials, progress).await
    }

    /// Lists the NRI plugins in the order in which they are called.
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.0.plugins.as_ref().map(|plugins| plugins.list()).unwrap_or_default()
    }

    /// Resumes the cleanup after exits that an earlier daemon was requested to do ([`crate::annotation`]). Must be
    /// called before requests are served, so that no client is creating containers in a pod.
    pub fn resume_cleanup(&self) {
        sandbox::after_exit::resume(&self.0);
    }
}
