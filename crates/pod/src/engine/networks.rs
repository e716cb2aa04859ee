//! Operations on named networks.

use super::Engine;
use crate::{
    Error, NetworkChoice, NetworkDefinition, NetworkEndpoint, NetworkRequest, SandboxId, Selects, sandbox::connect,
};

impl Engine {
    /// Creates a named network, which survives a reboot.
    ///
    /// # Errors
    /// `InvalidArgument`, `AlreadyExists`, or the error of the disk.
    pub async fn create_network(&self, request: NetworkRequest) -> Result<NetworkDefinition, Error> {
        Ok(self.0.node.network.create_network(request).await?)
    }

    /// Returns the named networks by name.
    #[must_use]
    pub fn networks(&self) -> Vec<NetworkDefinition> {
        self.0.node.network.networks()
    }

    /// Returns a named network, by its name or the beginning of its id, and the pods that are attached to it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn network(&self, query: &str) -> Result<(NetworkDefinition, Vec<NetworkEndpoint>), Error> {
        let network = &self.0.node.network;
        let definition = network.network(query)?;
        let endpoints = network.endpoints(&definition)?;
        Ok((definition, endpoints))
    }

    /// Connects a running pod with a named network.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for what the network cannot give or if it is connected already, `FailedPrecondition`
    /// if the pod is not running or has no network of its own. Everything is rolled back then.
    pub async fn connect_network(
        &self,
        pod: &(impl Selects<SandboxId> + ?Sized),
        choice: NetworkChoice,
    ) -> Result<(), Error> {
        connect::connect(&self.0, pod.as_ref(), choice).await
    }

    /// Disconnects a running pod from a named network. With `force` it is not an error if it is not connected.
    ///
    /// # Errors
    /// `NotFound`, `FailedPrecondition`, or the kernel's error; then it is tried again in the background.
    pub async fn disconnect_network(
        &self,
        pod: &(impl Selects<SandboxId> + ?Sized),
        network: String,
        force: bool,
    ) -> Result<(), Error> {
        connect::disconnect(&self.0, pod.as_ref(), network, force).await
    }

    /// Removes a named network.
    ///
    /// # Errors
    /// `NotFound`; `FailedPrecondition` while a pod is attached.
    pub async fn remove_network(&self, query: &str) -> Result<(), Error> {
        Ok(self.0.node.network.remove_network(query).await?)
    }
}
