//! Whether pods can have user namespaces on this node: tried once, and told by `Status`.

use monitor_api::MakeNamespaces;

use crate::{
    Error, ErrorKind, SandboxConfig, UserMappings,
    engine::{Inner, blocking},
    sandbox::id_map_of,
};

/// The ids it is tried with: no file has them afterwards.
const FIRST: u32 = 1 << 30;
const LENGTH: u32 = 1 << 16;

/// How long `Status` waits for the first answer.
const FIRST_TRY: std::time::Duration = std::time::Duration::from_secs(2);

/// What came of it.
pub(crate) type Tried = tokio::sync::OnceCell<Result<(), String>>;

impl Inner {
    /// Whether they can be had, and what is missing. The first answer stays, unless nobody could give one.
    pub(crate) async fn user_namespaces(&self) -> Result<(), String> {
        let tried = self.user_namespaces.get_or_try_init(|| async {
            match self.try_user_namespace().await {
                Ok(()) => Ok(Ok(())),
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => {
                    Err(error.to_string())
                }
                Err(error) => Ok(Err(error.to_string())),
            }
        });
        tried.await?.clone()
    }

    /// As [`Inner::user_namespaces`], for `Status`: waits a moment for the first answer, and for none of a monitor that
    /// hangs.
    pub(crate) async fn known_user_namespaces(&self) -> Result<(), String> {
        if let Some(known) = self.user_namespaces.get() {
            return known.clone();
        }
        let monitor = self.health.monitor.condition();
        if !monitor.ready {
            return Err(monitor.message);
        }
        let tried = tokio::time::timeout(FIRST_TRY, self.user_namespaces()).await;
        tried.unwrap_or_else(|_| Err("not known yet: the monitor has not tried one".to_owned()))
    }

    /// For a pod that asks for one.
    pub(crate) async fn need_user_namespaces(&self, config: &SandboxConfig) -> Result<(), Error> {
        if config.user_namespace.is_none() {
            return Ok(());
        }
        let told = |why| Error::state(format!("pods cannot have user namespaces on this node: {why}"));
        self.user_namespaces().await.map_err(told)
    }

    /// A user namespace with a network namespace of its own, and images shown as its.
    async fn try_user_namespace(&self) -> Result<(), Error> {
        let map = || vec![oci::IdMapping { container_id: 0, host_id: FIRST, size: LENGTH }];
        let maps = UserMappings { uids: map(), gids: map() };
        let wanted = MakeNamespaces { user: maps.clone(), network: true, ipc: true, hostname: Some("probe".into()) };
        let owned = self.monitor.make_namespaces(wanted, None).await?;
        let Some(user) = owned.user else { return Err(Error::internal("the monitor made no user namespace")) };
        let images = self.images.clone();
        blocking(move || Ok(images.probe_id_map(&id_map_of(&maps, user))?)).await
    }
}
