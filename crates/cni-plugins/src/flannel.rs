//! `flannel`: the description of `subnet.env`, which flannel's daemon writes, as configuration of another plugin, which is `bridge` unless
//! configured. Files and configuration are those of flannel's own plugin.

mod scratch;

use std::{
    io,
    path::{Path, PathBuf},
};

use ::overlay::FlannelEnvironment;
use rtnl::subnet::Subnet;
use serde_json::{Map, Value, json};

use crate::{Error, PluginResult, PluginType, Request, delegate};

/// File of flannel's daemon unless configured.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Directory with the configurations of attached pods unless configured.
const DATA_DIRECTORY: &str = "/var/lib/cni/flannel";

fn text<'a>(config: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn data_directory(request: &Request) -> PathBuf {
    text(&request.config, "dataDir").unwrap_or(DATA_DIRECTORY).into()
}

/// Reports whether the plugin that does the work is one of this crate.
pub(crate) fn is_supported(config: &Map<String, Value>) -> bool {
    let empty = Map::new();
    let delegate = config.get("delegate").and_then(Value::as_object).unwrap_or(&empty);
    let kind = PluginType::from_name(text(delegate, "type").unwrap_or("bridge"));
    // A delegate that delegates again is left to the programs.
    kind.is_some_and(|kind| kind != PluginType::Flannel && kind.supports(delegate))
}

/// Reports whether `DEL` of the plugin that does the work may run later.
pub(crate) fn is_deferrable(config: &Map<String, Value>) -> bool {
    let empty = Map::new();
    let delegate = config.get("delegate").and_then(Value::as_object).unwrap_or(&empty);
    let kind = PluginType::from_name(text(delegate, "type").unwrap_or("bridge"));
    kind.is_some_and(|kind| kind != PluginType::Flannel && kind.is_deferrable(delegate))
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let delegated = request.with_config(delegated(request)?)?;
    // Before the pod is attached, so that it can be detached in any case.
    scratch::write(&data_directory(request), &request.container, &delegated.config)?;
    match in_process(&delegated) {
        Some(kind) => kind.attach(&delegated),
        None => delegate::add(kind(&delegated), &delegated),
    }
}

/// Detaches the pod with the configuration that it was attached with. Without that file it was detached already.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let directory = data_directory(request);
    let Some(config) = scratch::read(&directory, &request.container)? else { return Ok(()) };
    run(&request.with_config(config)?, "DEL", PluginType::detach)?;
    scratch::remove(&directory, &request.container)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let config = scratch::read(&data_directory(request), &request.container)?;
    let config = config.ok_or_else(|| Error::differs("flannel", "the configuration of the pod is not recorded"))?;
    run(&request.with_config(config)?, "CHECK", PluginType::check)
}

/// Reports an error unless flannel's daemon has described the subnet of this node.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    run(&request.with_config(delegated(request)?)?, "STATUS", PluginType::status)
}

pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    let mut config = match delegated(request) {
        // Flannel's daemon is gone: the configuration of the delegate is not known.
        Err(Error::Overlay(::overlay::Error::Kernel { cause, .. })) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        delegated => delegated?,
    };
    for (key, value) in &request.config {
        if key.starts_with("cni.dev/") {
            config.insert(key.clone(), value.clone());
        }
    }
    run(&request.with_config(config)?, "GC", PluginType::collect)
}

fn kind(request: &Request) -> &str {
    text(&request.config, "type").unwrap_or("bridge")
}

fn in_process(delegated: &Request) -> Option<PluginType> {
    let kind = PluginType::from_name(kind(delegated)).filter(|kind| *kind != PluginType::Flannel);
    kind.filter(|kind| kind.supports(&delegated.config))
}

fn run(
    delegated: &Request,
    command: &'static str,
    work: fn(PluginType, &Request) -> Result<(), Error>,
) -> Result<(), Error> {
    match in_process(delegated) {
        Some(kind) => work(kind, delegated),
        None => delegate::run(command, kind(delegated), delegated).map(drop),
    }
}

/// Returns the configuration of the plugin that does the work.
fn delegated(request: &Request) -> Result<Map<String, Value>, Error> {
    let file = text(&request.config, "subnetFile").unwrap_or(SUBNET_FILE);
    let environment = FlannelEnvironment::read(Path::new(file))?;
    let mut config = match request.config.get("delegate") {
        None => Map::new(),
        Some(Value::Object(delegate)) => delegate.clone(),
        Some(_) => return Err(Error::config("delegate", "is not an object")),
    };
    if config.get("type").is_some_and(|kind| !kind.is_string()) {
        return Err(Error::config("delegate.type", "is not a string"));
    }
    if let Some(key) = ["name", "ipam"].into_iter().find(|key| config.contains_key(*key)) {
        return Err(Error::config("delegate", format!("must not have {key:?}, which flannel sets")));
    }
    for key in ["runtimeConfig", "args"] {
        if let Some(value) = request.config.get(key) {
            config.insert(key.into(), value.clone());
        }
    }
    config.insert("name".into(), request.network.as_str().into());
    config.insert("cniVersion".into(), request.version.as_str().into());
    let mut default = |key: &str, value: Value| {
        config.entry(key.to_owned()).or_insert(value);
    };
    default("type", "bridge".into());
    default("ipMasq", (!environment.masquerades).into());
    default("mtu", environment.mtu.into());
    if config.get("type").and_then(Value::as_str) == Some("bridge") {
        config.entry("isGateway").or_insert(true.into());
    }
    config.insert("ipam".into(), addresses(request, &environment)?);
    Ok(config)
}

/// Returns the section for address management: the subnets of this node, and routes to the whole network.
fn addresses(request: &Request, environment: &FlannelEnvironment) -> Result<Value, Error> {
    let mut section = match request.config.get("ipam") {
        None => Map::new(),
        Some(Value::Object(section)) => section.clone(),
        Some(_) => return Err(Error::config("ipam", "is not an object")),
    };
    section.entry("type").or_insert("host-local".into());
    let ranges = environment.subnets.iter().map(|subnet| json!([{ "subnet": subnet.masked() }])).collect::<Vec<_>>();
    section.insert("ranges".into(), ranges.into());
    let mut routes = match section.remove("routes") {
        None => Vec::new(),
        Some(Value::Array(routes)) => routes,
        Some(_) => return Err(Error::config("ipam.routes", "is not a list")),
    };
    let mut networks: Vec<Subnet> = Vec::new();
    for network in environment.networks.iter().map(|network| network.masked()) {
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    routes.extend(networks.iter().map(|network| json!({ "dst": network })));
    section.insert("routes".into(), routes.into());
    Ok(Value::Object(section))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(config: Value, file: &Path) -> Request {
        let mut config = config;
        for (key, value) in [("name", "n"), ("cniVersion", "1.0.0"), ("type", "flannel")] {
            config[key] = value.into();
        }
        config["subnetFile"] = file.display().to_string().into();
        Request::new(config).unwrap()
    }

    #[test]
    fn what_the_delegate_has_takes_precedence() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("subnet.env");
        let text = "FLANNEL_NETWORK=10.244.0.0/16,10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        std::fs::write(&file, text).unwrap();
        let config = delegated(&request(json!({"delegate": {"mtu": 1300, "hairpinMode": true}}), &file)).unwrap();
        let expected = json!({"name": "n", "cniVersion": "1.0.0", "type": "bridge", "mtu": 1300, "hairpinMode": true,
            "ipMasq": false, "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]],
            "routes": [{"dst": "10.244.0.0/16"}]}});
        assert_eq!(Value::Object(config), expected);
        let config = delegated(&request(json!({"delegate": {"type": "ptp"}}), &file)).unwrap();
        assert!(!config.contains_key("isGateway"));
        for (delegate, expected) in [
            (json!({"name": "x"}), "must not have \"name\""),
            (json!({"ipam": {}}), "must not have \"ipam\""),
            (json!({"type": 1}), "not a string"),
            (json!([]), "not an object"),
        ] {
            let error = delegated(&request(json!({ "delegate": delegate }), &file)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(delegated(&request(json!({}), &directory.path().join("missing"))).is_err());
    }
}
