//! A request to a plugin: the parameters of the specification, parsed.

use std::path::PathBuf;

use netns::Namespace;
use rtnl::netlink::Socket;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{Announcer, Error, NftSocket, PluginResult, VERSIONS, arguments::Arguments};

/// Longest container id and network name in bytes.
const NAME_MAX: usize = 255;

/// A request to a plugin.
#[derive(Debug)]
pub struct Request {
    /// Container id (`CNI_CONTAINERID`).
    pub container: String,
    /// Name of the interface in the pod (`CNI_IFNAME`).
    pub interface: String,
    /// Network namespace of the pod; `None` if it is gone, which only `DEL` accepts.
    pub namespace: Option<Namespace>,
    /// Path of the namespace (`CNI_NETNS`), which is a part of results.
    pub namespace_path: String,
    /// Directories of plugin programs (`CNI_PATH`).
    pub directories: Vec<PathBuf>,
    /// Whether the caller knows that the container has no address of the network yet.
    pub is_new: bool,
    /// Socket for nftables in the node's namespace.
    pub nft: NftSocket,
    /// Announces addresses of pods.
    pub announcer: Announcer,
    pub(crate) arguments: Arguments,
    pub(crate) config: Map<String, Value>,
    pub(crate) version: String,
    pub(crate) network: String,
    pub(crate) previous: Option<PluginResult>,
}

/// An attachment that is valid according to a `GC` request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Container id.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Name of the interface.
    #[serde(rename = "ifname")]
    pub interface: String,
}

impl Request {
    /// Parses the configuration of a plugin as engines pass it: with `name`, `cniVersion`, and `prevResult`,
    /// `runtimeConfig` and `args` if there are any.
    ///
    /// # Errors
    /// [`Error::Decode`], [`Error::Config`], [`Error::Version`].
    pub fn new(config: Value) -> Result<Self, Error> {
        let Value::Object(mut config) = config else { return Err(Error::Decode("not a JSON object".into())) };
        remove_nulls(&mut config);
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (network, version) = (text("name"), text("cniVersion"));
        if !is_name(&network) {
            return Err(Error::config("name", format!("{network:?} is not a valid network name")));
        }
        if !VERSIONS.contains(&version.as_str()) {
            let reason = format!("not supported; supported versions: {}", VERSIONS.join(", "));
            return Err(Error::Version { version, reason });
        }
        let previous = config.remove("prevResult").as_ref().map(PluginResult::parse).transpose()?;
        Ok(Self {
            container: String::new(),
            interface: String::new(),
            namespace: None,
            namespace_path: String::new(),
            directories: Vec::new(),
            is_new: false,
            nft: NftSocket::default(),
            announcer: Announcer::default(),
            arguments: Arguments::default(),
            config,
            version,
            network,
            previous,
        })
    }

    /// Sets the attachment: container id, interface, and the namespace with its path.
    ///
    /// # Errors
    /// [`Error::Environment`] for an id or an interface name that is not valid.
    pub fn attachment(
        mut self,
        container: &str,
        interface: &str,
        namespace: Option<Namespace>,
        path: &str,
    ) -> Result<Self, Error> {
        if !is_name(container) {
            let reason = format!("{container:?} is not a valid container id");
            return Err(Error::Environment { variable: "CNI_CONTAINERID", reason });
        }
        if !rtnl::valid_name(interface) {
            let reason = format!("{interface:?} is not a valid interface name");
            return Err(Error::Environment { variable: "CNI_IFNAME", reason });
        }
        (self.container, self.interface) = (container.to_owned(), interface.to_owned());
        (self.namespace, self.namespace_path) = (namespace, path.to_owned());
        Ok(self)
    }

    /// Sets the arguments of `CNI_ARGS`: pairs of a key and a value, separated by semicolons.
    ///
    /// # Errors
    /// [`Error::Environment`] if an item is not a pair.
    pub fn with_arguments(mut self, text: &str) -> Result<Self, Error> {
        self.arguments = Arguments::parse(text)?;
        Ok(self)
    }

    /// Returns the version of the configuration.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the result of the plugins before this one.
    #[must_use]
    pub fn previous(&self) -> Option<&PluginResult> {
        self.previous.as_ref()
    }

    pub(crate) fn options<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let kind = self.config.get("type").and_then(Value::as_str).unwrap_or("plugin");
        serde_json::from_value(Value::Object(self.config.clone())).map_err(|e| Error::config(kind, e.to_string()))
    }

    pub(crate) fn namespace(&self) -> Result<&Namespace, Error> {
        let missing = || Error::Environment { variable: "CNI_NETNS", reason: "no network namespace is given".into() };
        self.namespace.as_ref().ok_or_else(missing)
    }

    pub(crate) fn required_previous(&self) -> Result<PluginResult, Error> {
        self.previous.clone().ok_or_else(|| Error::config("prevResult", "missing: the plugin must follow another one"))
    }

    /// Opens a rtnetlink socket in the namespace of the caller.
    pub(crate) fn node_socket() -> Result<Socket, Error> {
        Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))
    }

    /// Returns the attachments that a `GC` request names as valid.
    pub(crate) fn valid_attachments(&self) -> Result<Vec<Attachment>, Error> {
        const KEY: &str = "cni.dev/valid-attachments";
        let Some(list) = self.config.get(KEY) else { return Ok(Vec::new()) };
        serde_json::from_value(list.clone()).map_err(|e| Error::config(KEY, e.to_string()))
    }
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= NAME_MAX && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(plain)
}

/// Removes keys whose value is null: they have the same meaning as missing ones.
fn remove_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        if let Value::Object(inner) = value {
            remove_nulls(inner);
        }
    }
}
