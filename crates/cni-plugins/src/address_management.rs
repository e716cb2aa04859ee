//! Calls the address management plugin that a configuration names: in this process for `host-local` and `static`, else as
//! a program.

use serde_json::Value;

use crate::{Error, PluginResult, Request, delegate, host_local, result::Dns, static_addresses};

/// What manages the addresses of a network.
enum Manager<'a> {
    None,
    HostLocal,
    Static,
    Program(&'a str),
}

fn manager(request: &Request) -> Result<Manager<'_>, Error> {
    let section = request.config.get("ipam");
    let kind = section.and_then(|ipam| ipam.get("type")).and_then(Value::as_str).unwrap_or_default();
    Ok(match kind {
        "" => Manager::None,
        "host-local" => Manager::HostLocal,
        "static" => Manager::Static,
        other if other.contains('/') || other.starts_with('.') => {
            return Err(Error::config("ipam.type", format!("{other:?} is not a valid program name")));
        }
        other => Manager::Program(other),
    })
}

/// Reports whether the configuration names an address management plugin.
pub(crate) fn is_configured(request: &Request) -> bool {
    !matches!(manager(request), Ok(Manager::None))
}

/// Returns addresses for the pod; `None` if no plugin is configured. At least one address is in the result.
fn add(request: &Request) -> Result<Option<PluginResult>, Error> {
    let result = match manager(request)? {
        Manager::None => return Ok(None),
        Manager::HostLocal => host_local::add(request)?,
        Manager::Static => static_addresses::add(request)?,
        Manager::Program(kind) => delegate::add(kind, request)?,
    };
    if result.ips.is_empty() {
        return Err(Error::config("ipam", "the plugin returned no address"));
    }
    Ok(Some(result))
}

/// Gets addresses, passes them to `work`, and releases them if it fails.
pub(crate) fn around(
    request: &Request,
    work: impl FnOnce(Option<PluginResult>) -> Result<PluginResult, Error>,
) -> Result<PluginResult, Error> {
    let managed = add(request)?;
    work(managed).inspect_err(|_| {
        // The first error is the one to return; `DEL` and `GC` release the addresses too.
        let _ = delete(request);
    })
}

/// Releases the pod's addresses.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    match manager(request)? {
        Manager::None | Manager::Static => Ok(()),
        Manager::HostLocal => host_local::delete(request),
        Manager::Program(kind) => delegate::run("DEL", kind, request).map(drop),
    }
}

/// Checks that the pod has its addresses.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    match manager(request)? {
        Manager::None => Ok(()),
        Manager::HostLocal => host_local::check(request),
        Manager::Static => static_addresses::check(request),
        Manager::Program(kind) => delegate::run("CHECK", kind, request).map(drop),
    }
}

/// Reports an error if the plugin cannot add another pod.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    match manager(request)? {
        Manager::None => Ok(()),
        Manager::HostLocal => host_local::status(request),
        Manager::Static => static_addresses::status(request),
        Manager::Program(kind) => delegate::run("STATUS", kind, request).map(drop),
    }
}

/// Releases addresses of attachments that are not valid.
pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    match manager(request)? {
        Manager::None | Manager::Static => Ok(()),
        Manager::HostLocal => host_local::collect(request),
        Manager::Program(kind) => delegate::run("GC", kind, request).map(drop),
    }
}

impl Request {
    /// Returns the name servers of the configuration.
    pub(crate) fn dns(&self) -> Result<Dns, Error> {
        let parse = |dns: &Value| serde_json::from_value(dns.clone()).map_err(|e| Error::config("dns", e.to_string()));
        self.config.get("dns").map_or_else(|| Ok(Dns::default()), parse)
    }
}
