//! A connection from its first byte until the plugin is usable, and the requests that the plugin sends.

use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use prost::Message;
use tokio::{net::UnixStream, sync::oneshot};
use ttrpc::Status;

use crate::{
    bounded,
    collect::UPDATES_MAX,
    connection::{Connection, Service, code},
    messages::{Configure, ContainerUpdate, Empty, FailedUpdates, RegisterPlugin, UpdateContainers},
    plugin::{Identity, Plugin},
    plugins::Plugins,
};

/// Longest name of a plugin.
const NAME_MAX: usize = 128;
/// Most bytes of a plugin's configuration.
const CONFIGURATION_MAX: u64 = 1 << 20;

/// Index, name and process of a plugin that was launched.
#[derive(Clone, Debug)]
pub(crate) struct Launched {
    pub(crate) index: String,
    pub(crate) base: String,
    pub(crate) pid: Option<i32>,
}

/// What the requests of a plugin change.
struct Session {
    registration: Mutex<Option<oneshot::Sender<RegisterPlugin>>>,
    plugins: Weak<Plugins>,
    /// The plugin, once it is registered and configured.
    plugin: OnceLock<Weak<Plugin>>,
}

/// Registers, configures and synchronizes the plugin at the other end of a socket.
pub(crate) async fn connect(
    plugins: &Arc<Plugins>,
    socket: UnixStream,
    launched: Option<Launched>,
) -> Result<Arc<Plugin>, String> {
    let (sender, registration) = oneshot::channel();
    let session = Arc::new(Session {
        registration: Mutex::new(Some(sender)),
        plugins: Arc::downgrade(plugins),
        plugin: OnceLock::new(),
    });
    let peer = socket.peer_cred().ok().and_then(|peer| peer.pid());
    let connection = Connection::new(socket, service(&session));
    let config = &plugins.config;
    let registered = async {
        tokio::select! {
            registration = registration => registration.ok(),
            () = connection.closed() => None,
        }
    };
    let registration = match tokio::time::timeout(config.registration_timeout, registered).await {
        Ok(Some(registration)) => registration,
        Ok(None) => return Err("its connection was closed before it registered".to_owned()),
        Err(_) => return Err(format!("it did not register within {} ms", config.registration_timeout.as_millis())),
    };
    let identity = match launched {
        Some(Launched { index, base, pid }) => Identity { index, base, pid, launched: true },
        None => Identity { index: registration.plugin_idx, base: registration.plugin_name, pid: peer, launched: false },
    };
    if !is_index(&identity.index) || !is_name(&identity.base) {
        return Err(format!(
            "it registered as {:?} with index {:?}; a name of letters, digits and -_.+ and an index of two digits are \
             required",
            identity.base.chars().take(NAME_MAX).collect::<String>(),
            identity.index.chars().take(NAME_MAX).collect::<String>()
        ));
    }
    let directory = config.plugin_config_dir.clone();
    let (index, base) = (identity.index.clone(), identity.base.clone());
    let configuration = match identity.launched {
        true => offload::blocking(move || read_configuration(&directory, &index, &base)),
        false => offload::blocking(|| Ok(String::new())),
    };
    let milliseconds = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let request = Configure {
        config: configuration.await.map_err(|e| e.to_string())??,
        runtime_name: config.runtime_name.clone(),
        runtime_version: config.runtime_version.clone(),
        registration_timeout: milliseconds(config.registration_timeout),
        request_timeout: milliseconds(config.request_timeout),
        nri_version: String::new(),
    };
    let plugin = Arc::new(Plugin::configure(connection, identity, &request, config.request_timeout).await?);
    let _only_once = session.plugin.set(Arc::downgrade(&plugin));
    plugins.join(&plugin).await?;
    tracing::info!(plugin = plugin.name, pid = plugin.pid, launched = plugin.launched, "an NRI plugin is registered");
    Ok(plugin)
}

pub(crate) fn is_index(index: &str) -> bool {
    index.len() == 2 && index.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(allowed)
}

/// Reads the configuration of a launched plugin; empty if there is none.
fn read_configuration(directory: &Path, index: &str, base: &str) -> Result<String, String> {
    use std::io::Read;
    for name in [format!("{index}-{base}.conf"), format!("{base}.conf")] {
        let path = directory.join(name);
        let failed = |error: std::io::Error| format!("read {}: {error}", path.display());
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(CONFIGURATION_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > CONFIGURATION_MAX {
            return Err(format!("read {}: longer than {CONFIGURATION_MAX} bytes", path.display()));
        }
        return Ok(text);
    }
    Ok(String::new())
}

fn service(session: &Arc<Session>) -> Service {
    let session = Arc::clone(session);
    Arc::new(move |method, argument| {
        let session = Arc::clone(&session);
        Box::pin(async move {
            match method.as_str() {
                "RegisterPlugin" => session.register(&argument),
                "UpdateContainers" => session.update_containers(&argument).await,
                _ => Err(Status { code: code::UNIMPLEMENTED, message: format!("no method {method}") }),
            }
        })
    })
}

fn invalid(message: impl ToString) -> Status {
    Status { code: code::INVALID_ARGUMENT, message: message.to_string() }
}

impl Session {
    fn register(&self, argument: &[u8]) -> Result<Vec<u8>, Status> {
        let request = bounded::decode::<RegisterPlugin>(argument).map_err(invalid)?;
        let sender = self.registration.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sender = sender.ok_or_else(|| invalid("the plugin is already registered"))?;
        let _ = sender.send(request);
        Ok(Empty {}.encode_to_vec())
    }

    /// Updates and evicts containers on the plugin's own account. Those that cannot be updated are in the answer.
    async fn update_containers(&self, argument: &[u8]) -> Result<Vec<u8>, Status> {
        let request = bounded::decode::<UpdateContainers>(argument).map_err(invalid)?;
        let count = request.update.len();
        if count > UPDATES_MAX {
            return Err(invalid(format!("{count} updates; at most {UPDATES_MAX} are allowed")));
        }
        let plugin = self.plugin.get().ok_or_else(|| invalid("the plugin is not registered yet"))?;
        let plugin = plugin.upgrade().ok_or_else(|| invalid("the plugin was disconnected"))?;
        let host = self.plugins.upgrade().and_then(|plugins| plugins.host());
        let host = host.ok_or_else(|| invalid("the engine is shutting down"))?;
        if !request.evict.is_empty() {
            let exhausted = |message| Status { code: code::RESOURCE_EXHAUSTED, message };
            host.evict(plugin.evictions.accept(request.evict).map_err(exhausted)?);
        }
        let failed: Vec<ContainerUpdate> = host.update(request.update).await;
        Ok(FailedUpdates { failed }.encode_to_vec())
    }
}
