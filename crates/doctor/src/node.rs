//! Everything that the checks look at, collected once.

use std::path::PathBuf;

use crate::{
    DaemonState, Engine, Evidence, Host, Kubelet, Probes, Settings,
    kubelet::normalized,
    mounts::{self, Mount},
    probe::Space,
    processes::{self, Process},
    systemd::Unit,
};

/// What a caller gives to [`Node::collect`].
#[derive(Debug)]
pub struct Options {
    /// The files of the node.
    pub host: Host,
    /// Pinion's configuration.
    pub settings: Settings,
    /// The state of the daemon.
    pub daemon: DaemonState,
    /// What the kernel can do.
    pub probes: Probes,
    /// The kubelet's configuration file, if it is not the one that its flags name.
    pub kubelet_config: Option<PathBuf>,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// The files of the node.
    pub host: Host,
    /// Pinion's configuration.
    pub settings: Settings,
    /// The state of the daemon.
    pub daemon: DaemonState,
    /// What the kernel can do.
    pub probes: Probes,
    /// The kubelet; `None` if the node does not have one.
    pub kubelet: Option<Kubelet>,
    /// Other engines.
    pub engines: Vec<Evidence>,
    pub(crate) processes: Vec<Process>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) unit: Option<Unit>,
    /// Space of the directories with images and with the kubelet's volumes and logs.
    pub(crate) space: Vec<Space>,
    /// The node's firewall rules as `iptables-save` prints them; `None` if it is not installed.
    pub(crate) rules: Option<String>,
}

impl Node {
    /// Reads everything from the node.
    #[must_use]
    pub fn collect(options: Options) -> Self {
        let Options { host, settings, daemon, probes, kubelet_config } = options;
        let processes = processes::list(&host);
        let mounts = mounts::list(&host);
        let kubelet = Kubelet::find(&host, &processes, kubelet_config.as_deref());
        let mut engines: Vec<_> = Engine::ALL.iter().map(|engine| engine.look(&host, &processes, &mounts)).collect();
        // At the path of CRI-O's socket, it is not a trace of CRI-O.
        let own = settings.cadvisor_socket.as_ref().map(|path| normalized(&path.to_string_lossy()));
        for evidence in &mut engines {
            evidence.sockets.retain(|socket| Some(socket) != own.as_ref());
        }
        let mut directories = vec![settings.data_dir.clone()];
        if kubelet.is_some() {
            directories.extend(["/var/lib/kubelet", "/var/log/pods"].map(PathBuf::from));
        }
        let space = directories.iter().filter_map(|path| Space::of(&host, path)).collect();
        let rules = host.program("iptables-save").and_then(|program| crate::program::output(&host, &program, &[]));
        let unit = Unit::load(&host, "pinion.service");
        Self { host, settings, daemon, probes, kubelet, engines, processes, mounts, unit, space, rules }
    }

    /// Returns what was found of an engine.
    #[must_use]
    pub fn engine(&self, engine: Engine) -> Option<&Evidence> {
        self.engines.iter().find(|evidence| evidence.engine == engine)
    }

    /// Whether the kubelet uses Pinion's socket.
    #[must_use]
    pub fn is_switched(&self) -> bool {
        self.kubelet.as_ref().is_some_and(|kubelet| kubelet.socket() == self.settings.socket)
    }

    /// Whether `/sys/fs/cgroup` is the unified hierarchy of cgroup v2.
    pub(crate) fn has_unified_cgroups(&self) -> bool {
        self.host.exists("/sys/fs/cgroup/cgroup.controllers")
    }

    /// Returns the running kernel's version, such as `6.1.0-13-amd64`.
    pub(crate) fn kernel(&self) -> String {
        self.host.sysctl("kernel.osrelease").unwrap_or_default()
    }

    /// Whether a kernel module is loaded or built in.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        if self.host.exists(format!("/sys/module/{name}")) {
            return true;
        }
        let built_in = self.host.read(format!("/lib/modules/{}/modules.builtin", self.kernel())).unwrap_or_default();
        let file = format!("/{name}.ko");
        built_in.lines().any(|line| line.replace('-', "_").ends_with(&file))
    }
}
