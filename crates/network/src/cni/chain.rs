//! A CNI configuration list, as the elements that implement it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{Config, Error, PortMapping, bridge::BridgeOptions, named::NAME_KEY};

/// Supported versions of the CNI specification.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Types of plugins that read the annotation `k8s.v1.cni.cncf.io/networks` themselves.
const SELECTING: [&str; 3] = ["multus", "multus-shim", "genie"];

/// A network: a list of elements that run in order to attach a pod, and in reverse order to detach it.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) elements: Vec<Element>,
    pub(crate) disable_check: bool,
    pub(crate) disable_gc: bool,
    /// Configuration list as read from the file; `None` for the built-in network.
    pub(crate) list: Option<Value>,
    pub(crate) file: Option<PathBuf>,
}

/// One element of a chain.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    /// Built-in `bridge` with `host-local`.
    Bridge(BridgeOptions),
    /// Built-in `loopback`.
    Loopback,
    /// Built-in `portmap`, which requires a built-in bridge before it.
    Portmap,
    /// Any other plugin, run as a program.
    Exec(Plugin),
}

/// A plugin that is run as a program.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) kind: String,
    pub(crate) config: Map<String, Value>,
}

impl Plugin {
    /// Reports whether the plugin declares a capability.
    pub(crate) fn has_capability(&self, name: &str) -> bool {
        self.config.get("capabilities").and_then(|c| c.get(name)).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Chain {
    /// Returns the chain of the built-in network.
    pub(crate) fn built_in(config: &Config) -> Result<Self, Error> {
        let elements = vec![Element::Bridge(BridgeOptions::built_in(config)?), Element::Portmap];
        let (name, version) = ("pinion".into(), "1.1.0".into());
        Ok(Self { name, version, elements, disable_check: true, disable_gc: true, list: None, file: None })
    }

    /// Parses a configuration list, or the configuration of one plugin. The error does not contain the file's name.
    pub(crate) fn parse(value: Value) -> Result<Self, String> {
        let list = as_list(value)?;
        let text = |key: &str| list.get(key).and_then(Value::as_str);
        let name = text("name").ok_or("\"name\" is missing")?;
        if !valid_network(name) {
            return Err(format!(
                "name {name:?} is not valid: use letters, digits and . _ -, starting with a letter or digit"
            ));
        }
        let version = version(&list)?;
        let plugins = list.get("plugins").and_then(Value::as_array).ok_or("list \"plugins\" is missing")?;
        if plugins.is_empty() {
            return Err("list \"plugins\" is empty".into());
        }
        let mut elements = Vec::with_capacity(plugins.len());
        for (index, plugin) in plugins.iter().enumerate() {
            let element = element(plugin, &elements).map_err(|e| format!("plugins[{index}]: {e}"))?;
            elements.push(element);
        }
        Ok(Self {
            name: name.to_owned(),
            version,
            elements,
            disable_check: flag(&list, "disableCheck")?,
            disable_gc: flag(&list, "disableGC")?,
            list: Some(list),
            file: None,
        })
    }

    pub(crate) fn of_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Returns the name that people know the network by.
    pub(crate) fn title(&self) -> &str {
        let named = self.list.as_ref().and_then(|list| list.get(NAME_KEY)).and_then(Value::as_str);
        named.unwrap_or(&self.name)
    }

    /// Reports whether a plugin attaches pods to the networks that they select, so that the engine must not.
    pub(crate) fn attaches_secondary(&self) -> bool {
        self.plugins().any(|plugin| SELECTING.contains(&plugin.kind.as_str()))
    }

    /// Reports whether `GC` is called for the network (CNI 1.1.0).
    pub(crate) fn is_collected(&self) -> bool {
        !self.disable_gc && self.is_at_least("1.1.0") && self.plugins().next().is_some()
    }

    /// Reports whether our firewall maps ports for the chain.
    pub(crate) fn maps_ports(&self) -> bool {
        self.elements.iter().any(|element| matches!(element, Element::Portmap))
    }

    /// Reports whether our firewall or a plugin maps ports for the chain.
    pub(crate) fn publishes_ports(&self) -> bool {
        self.maps_ports() || self.plugins().any(|plugin| plugin.has_capability("portMappings"))
    }

    /// Reports whether a plugin maps ports, and not our firewall.
    pub(crate) fn has_portmap_plugin(&self) -> bool {
        self.plugins().any(|plugin| plugin.kind == "portmap" && plugin.has_capability("portMappings"))
    }

    /// Returns those of a pod's ports that no other pod of the node may have at the same time.
    pub(crate) fn reserved<'a>(&self, ports: &'a [PortMapping]) -> &'a [PortMapping] {
        if self.maps_ports() || self.has_portmap_plugin() { ports } else { &[] }
    }

    /// Returns the plugins that are run as programs.
    pub(crate) fn plugins(&self) -> impl DoubleEndedIterator<Item = &Plugin> {
        self.elements.iter().filter_map(|element| match element {
            Element::Exec(plugin) => Some(plugin),
            _ => None,
        })
    }

    pub(crate) fn bridge(&self) -> Option<&BridgeOptions> {
        self.elements.iter().find_map(|element| match element {
            Element::Bridge(options) => Some(options),
            _ => None,
        })
    }

    /// Reports whether the chain has at least a version. Each part of a version is one digit, so versions compare as
    /// strings.
    pub(crate) fn is_at_least(&self, version: &str) -> bool {
        self.version.as_str() >= version
    }
}

fn valid_network(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= 200 && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(plain)
}

/// Converts a configuration of one plugin (`.conf`) to a list with one element.
pub(super) fn as_list(value: Value) -> Result<Value, String> {
    let Value::Object(object) = value else { return Err("not a JSON object".into()) };
    if object.contains_key("plugins") || !object.contains_key("type") {
        return Ok(Value::Object(object));
    }
    let mut list = Map::new();
    for key in ["name", "cniVersion"] {
        list.extend(object.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    list.insert("plugins".into(), Value::Array(vec![Value::Object(object)]));
    Ok(Value::Object(list))
}

/// Returns the name of the directory that has further plugins of a list; `None` with `loadOnlyInlinedPlugins`, and for a
/// list without a valid name.
pub(super) fn plugin_directory(list: &Value) -> Result<Option<&str>, String> {
    let has_plugins = list.get("plugins").is_some();
    match (flag(list, "loadOnlyInlinedPlugins")?, has_plugins) {
        (true, false) => Err("loadOnlyInlinedPlugins requires \"plugins\"".into()),
        (true, true) => Ok(None),
        (false, _) if list.get("plugins").and_then(Value::as_array).is_some_and(Vec::is_empty) => {
            Err("list \"plugins\" is empty".into())
        }
        (false, _) => Ok(list.get("name").and_then(Value::as_str).filter(|name| valid_network(name))),
    }
}

/// Returns a member that is true or false, or one of these as text.
fn flag(list: &Value, key: &str) -> Result<bool, String> {
    let text = |text: &str| text.to_ascii_lowercase().parse().ok();
    match list.get(key) {
        None => Ok(false),
        Some(value) => {
            let flag = value.as_bool().or_else(|| value.as_str().and_then(text));
            flag.ok_or_else(|| format!("{key} {value} is neither true nor false"))
        }
    }
}

/// Returns the newest supported version of `cniVersions` (1.1.0) and `cniVersion`.
fn version(list: &Value) -> Result<String, String> {
    let many = list.get("cniVersions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let one = list.get("cniVersion").and_then(Value::as_str);
    let best = many.iter().filter_map(Value::as_str).chain(one).filter(|v| VERSIONS.contains(v)).max();
    let stated = one.unwrap_or("(none)");
    best.map(str::to_owned)
        .ok_or_else(|| format!("cniVersion {stated} is not supported; supported versions: {}", VERSIONS.join(", ")))
}

fn element(plugin: &Value, before: &[Element]) -> Result<Element, String> {
    let config = plugin.as_object().ok_or("not a JSON object")?;
    let kind = config.get("type").and_then(Value::as_str).ok_or("\"type\" is missing")?;
    if kind.is_empty() || kind.contains('/') || kind == "." || kind == ".." || kind.contains('\0') {
        return Err(format!("type {kind:?} is not a valid program name"));
    }
    let only = |keys: &[&str]| config.keys().all(|key| keys.contains(&key.as_str()));
    match kind {
        "bridge" if before.is_empty() => {
            if let Some(options) = BridgeOptions::parse(plugin) {
                return options.map(Element::Bridge);
            }
        }
        "loopback" if only(&["type", "name", "cniVersion"]) => return Ok(Element::Loopback),
        "portmap" if matches!(before, [Element::Bridge(_), ..]) => {
            let snat = config.get("snat").is_none_or(|snat| snat == &Value::Bool(true));
            let has_capability =
                config.get("capabilities").and_then(|c| c.get("portMappings")) == Some(&Value::Bool(true));
            if snat && has_capability && only(&["type", "capabilities", "snat", "backend"]) {
                return Ok(Element::Portmap);
            }
        }
        _ => {}
    }
    Ok(Element::Exec(Plugin { kind: kind.to_owned(), config: config.clone() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds(chain: &Chain) -> Vec<String> {
        let kind = |element: &Element| match element {
            Element::Bridge(options) => format!("bridge {}", options.bridge),
            Element::Loopback => "loopback".into(),
            Element::Portmap => "portmap".into(),
            Element::Exec(plugin) => format!("exec {}", plugin.kind),
        };
        chain.elements.iter().map(kind).collect()
    }

    fn bridge() -> Value {
        json!({"type": "bridge", "bridge": "b0", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}})
    }

    fn portmap() -> Value {
        json!({"type": "portmap", "capabilities": {"portMappings": true}})
    }

    #[test]
    fn supported_plugins_are_built_in() {
        let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [bridge(), portmap(), {"type": "tuning"}]});
        assert_eq!(kinds(&Chain::parse(list).unwrap()), ["bridge b0", "portmap", "exec tuning"]);
    }

    #[test]
    fn an_unsupported_option_makes_the_plugin_a_program() {
        for (key, value) in [("vlan", json!(5)), ("promiscMode", json!(true)), ("ipam", json!({"type": "dhcp"}))] {
            let mut plugin = bridge();
            plugin[key] = value;
            let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [plugin, portmap()]});
            assert_eq!(kinds(&Chain::parse(list).unwrap()), ["exec bridge", "exec portmap"], "{key}");
        }
    }

    #[test]
    fn a_single_configuration_is_a_list_of_one() {
        let mut conf = bridge();
        conf["name"] = json!("n");
        conf["cniVersion"] = json!("0.4.0");
        let chain = Chain::parse(conf).unwrap();
        assert_eq!((kinds(&chain), chain.version.as_str()), (vec!["bridge b0".to_owned()], "0.4.0"));
    }

    #[test]
    fn errors_name_the_invalid_key() {
        let list = |plugins: Value| json!({"cniVersion": "1.0.0", "name": "n", "plugins": plugins});
        let cases = [
            (json!([]), "not a JSON object"),
            (json!({}), "\"name\" is missing"),
            (json!({"name": "../x", "cniVersion": "1.0.0", "plugins": []}), "not valid"),
            (json!({"name": "n", "cniVersion": "0.2.0", "plugins": [{"type": "x"}]}), "0.2.0 is not supported"),
            (list(json!([])), "is empty"),
            (
                json!({"name": "n", "cniVersion": "1.1.0", "disableGC": 1, "plugins": [{"type": "x"}]}),
                "neither true nor",
            ),
            (list(json!([{}])), "plugins[0]: \"type\" is missing"),
            (list(json!([{"type": "../../bin/sh"}])), "is not a valid program name"),
            (list(json!([{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/31"}}])), "too small"),
        ];
        for (value, expected) in cases {
            let error = Chain::parse(value).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
