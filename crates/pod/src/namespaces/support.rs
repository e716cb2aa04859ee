//! Support of user namespaces for pods on this node: probed once, and reported by `Status`.

use monitor_api::MakeNamespaces;

use super::id_map::id_map_of;
use crate::{Error, ErrorKind, SandboxConfig, UserMappings, operation::blocking, parts::Parts};

/// Host ids of the probe: no file is owned by them afterwards.
const FIRST: u32 = 1 << 30;
const LENGTH: u32 = 1 << 16;

/// How long `Status` waits for the first result.
const FIRST_PROBE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

impl Parts {
    /// Probes whether pods can have user namespaces, and returns the reason if they cannot. The result is cached,
    /// unless the probe could not run.
    pub(crate) async fn user_namespaces(&self) -> Result<(), String> {
        let probed = self.node.user_namespaces.get_or_try_init(|| async {
            match self.probe_user_namespace().await {
                Ok(()) => Ok(Ok(())),
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => {
                    Err(error.to_string())
                }
                Err(error) => Ok(Err(error.to_string())),
            }
        });
        probed.await?.clone()
    }

    /// Like [`Parts::user_namespaces`], for `Status`: waits only briefly for the first result, and not at all for a
    /// monitor that hangs.
    pub(crate) async fn user_namespaces_for_status(&self) -> Result<(), String> {
        if let Some(known) = self.node.user_namespaces.get() {
            return known.clone();
        }
        let monitor = self.observe.health.heartbeat.condition();
        if !monitor.ready {
            return Err(monitor.message);
        }
        let probed = tokio::time::timeout(FIRST_PROBE_TIMEOUT, self.user_namespaces()).await;
        probed.unwrap_or_else(|_| Err("not known yet: the monitor has not completed the probe".to_owned()))
    }

    /// Fails if a pod requests a user namespace and the node does not support it.
    pub(crate) async fn require_user_namespaces(&self, config: &SandboxConfig) -> Result<(), Error> {
        if config.user_namespace.is_none() {
            return Ok(());
        }
        let unsupported = |why| Error::state(format!("pods cannot have user namespaces on this node: {why}"));
        self.user_namespaces().await.map_err(unsupported)
    }

    /// Creates a user namespace with a network namespace, and an idmapped mount of an image.
    async fn probe_user_namespace(&self) -> Result<(), Error> {
        let map = || vec![oci::IdMapping { container_id: 0, host_id: FIRST, size: LENGTH }];
        let maps = UserMappings { uids: map(), gids: map() };
        let request = MakeNamespaces { user: maps.clone(), network: true, ipc: true, hostname: Some("probe".into()) };
        let owned = self.monitor.make_namespaces(request, None).await?;
        let Some(user) = owned.user else { return Err(Error::internal("the monitor made no user namespace")) };
        let images = self.node.images.clone();
        blocking(move || Ok(images.probe_id_map(&id_map_of(&maps, user))?)).await
    }
}
