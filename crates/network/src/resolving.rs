//! Resolvers of pods in named networks: sockets in the pod's namespace, answered from the [`NameTable`].

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use resolver::{Names, Resolver};

use crate::{Error, NameTable, Network, network::lock};

/// Names of the networks of one pod.
struct PodNames {
    names: Arc<NameTable>,
    sandbox: String,
}

impl Names for PodNames {
    fn addresses(&self, name: &str) -> Option<Vec<IpAddr>> {
        self.names.addresses(&self.sandbox, name)
    }

    fn name_of(&self, address: IpAddr) -> Option<String> {
        self.names.name_of(&self.sandbox, address)
    }

    fn is_forwarding(&self) -> bool {
        self.names.is_forwarding(&self.sandbox)
    }
}

impl Network {
    /// Starts the resolver of a pod at 127.0.0.11 in its namespace, unless it is running. Names that its networks do not
    /// have are forwarded to `servers`, or to the node's resolvers without any. It ends with the detachment of the pod,
    /// and has to be started again after a restart of the daemon. Must be called in a runtime.
    ///
    /// # Errors
    /// `EADDRINUSE` if a process of the pod has the port.
    pub fn serve_names(&self, sandbox: &str, ns: &netns::Namespace, servers: &[IpAddr]) -> Result<(), Error> {
        let inner = &self.inner;
        if lock(&inner.resolvers).contains_key(sandbox) {
            return Ok(());
        }
        let address = SocketAddr::new(resolver::ADDRESS, resolver::PORT);
        let sockets = offload::in_place(|| Ok::<_, Error>((ns.udp_socket(address)?, ns.tcp_listener(address)?)))?;
        let names = Arc::new(PodNames { names: Arc::clone(&inner.names), sandbox: sandbox.to_owned() });
        let started = Resolver::start(sockets, names, servers, &inner.shared_resolver);
        let started = started.map_err(|e| Error::kernel("start", format!("resolver of sandbox {sandbox}"), e))?;
        lock(&inner.resolvers).insert(sandbox.to_owned(), started);
        Ok(())
    }

    /// Reports whether the resolver of a pod is running.
    #[must_use]
    pub fn is_serving_names(&self, sandbox: &str) -> bool {
        lock(&self.inner.resolvers).contains_key(sandbox)
    }

    /// Ends the resolver of a pod, if it has one.
    pub fn stop_names(&self, sandbox: &str) {
        let resolver = lock(&self.inner.resolvers).remove(sandbox);
        drop(resolver);
    }

    /// Returns the names of pods, which other sources can add to.
    #[must_use]
    pub fn names(&self) -> &NameTable {
        &self.inner.names
    }
}
