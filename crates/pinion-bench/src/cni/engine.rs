//! Attaches pods as the daemon does.

use std::path::Path;

use network::{Config, Network, PodRef, PortMapping, Protocol};
use tokio::runtime::{Builder, Runtime};

use super::{
    attach::{Attach, Pod},
    lists::List,
};
use crate::engine::Failure;

pub(super) struct Engine {
    runtime: Runtime,
    network: Network,
}

impl Engine {
    pub(super) fn new(list: List) -> Result<Self, Failure> {
        let directory = Path::new("/run/net.d");
        let write = || {
            std::fs::create_dir(directory)?;
            std::fs::write(directory.join("10-bench.conflist"), list.config().to_string())
        };
        write().map_err(|e| Failure(format!("write the configuration: {e}")))?;
        let config = Config {
            cni_conf_dir: directory.to_owned(),
            // No program is needed; if one were, the pod would be refused.
            cni_bin_dirs: Vec::new(),
            state_dir: "/run/pinion".into(),
            bridge: "pinion0".into(),
            subnet: "10.85.0.0/16".into(),
            subnet6: None,
            selectable: Vec::new(),
            definitions_dir: "/run/pinion/definitions".into(),
            address_pools: Vec::new(),
            overlay: None,
        };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|e| Failure(format!("start the async runtime: {e}")))?;
        let network = runtime.block_on(async { Network::open(config) });
        Ok(Self { runtime, network: network.map_err(|e| Failure(e.to_string()))? })
    }
}

impl Attach for Engine {
    fn attach(&mut self, pod: &Pod<'_>) -> Result<(), Failure> {
        let reference =
            PodRef { sandbox: pod.id.clone(), name: "pod".into(), namespace: "bench".into(), ..PodRef::default() };
        let port = |host_port| PortMapping { protocol: Protocol::Tcp, container_port: 80, host_port, host_ip: None };
        let ports: Vec<PortMapping> = pod.port.map(port).into_iter().collect();
        let attached = self.runtime.block_on(self.network.attach(&reference, pod.namespace, pod.path, &ports));
        attached.map(drop).map_err(|e| Failure(e.to_string()))
    }

    fn detach(&mut self, pod: &Pod<'_>) -> Result<(), Failure> {
        self.runtime.block_on(self.network.detach(&pod.id)).map_err(|e| Failure(e.to_string()))
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.runtime.block_on(self.network.settle());
        Ok(())
    }
}
