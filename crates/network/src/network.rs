//! The network of a node's pods.

use std::{collections::HashSet, path::Path};

use crate::{Attachment, Config, Counters, Error, PodRef, PortMapping};

/// The network of a node's pods.
#[derive(Debug)]
pub struct Network {}

#[allow(missing_docs, unused_variables, clippy::unused_async)]
impl Network {
    pub fn open(config: Config) -> Result<Self, Error> {
        todo!()
    }
    pub fn ready(&self) -> Result<(), Error> {
        todo!()
    }
    pub fn describe(&self) -> String {
        todo!()
    }
    pub async fn attach(
        &self,
        pod: &PodRef,
        ns: &netns::Namespace,
        ns_path: &Path,
        ports: &[PortMapping],
    ) -> Result<Attachment, Error> {
        todo!()
    }
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        todo!()
    }
    pub async fn reconcile(&self, living: &HashSet<String>) -> Result<(), Error> {
        todo!()
    }
    pub async fn teardown(&self) -> Result<(), Error> {
        todo!()
    }
    /// Waits until everything that `detach` left to the background is gone.
    pub async fn settle(&self) {
        todo!()
    }
    pub fn counters(&self, ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
        todo!()
    }
}
