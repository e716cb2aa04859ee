//! Runtime handlers: what runs the containers of a pod.

use std::collections::BTreeMap;

use crate::{Error, OciHandler};

/// The runtime handlers of this node.
pub(crate) struct Handlers {
    /// Name of the default handler in addition to the empty one; may be empty.
    default: String,
    oci: BTreeMap<String, OciHandler>,
}

/// A runtime handler and its features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerInfo {
    /// Its name; empty for the default handler.
    pub name: String,
    /// Whether its containers may have mounts that are read-only recursively.
    pub recursive_readonly_mounts: bool,
    /// Whether its pods may have user namespaces, on a node that supports them.
    pub user_namespaces: bool,
}

/// What runs the containers of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler<'a> {
    /// The monitor itself.
    Native,
    /// A program with the command line of runc, run by the monitor.
    Oci(&'a OciHandler),
}

impl Handlers {
    pub(crate) fn new(default: String, oci: impl IntoIterator<Item = OciHandler>) -> Self {
        Self { default, oci: oci.into_iter().map(|handler| (handler.name.clone(), handler)).collect() }
    }

    /// Returns the names that a pod may request, the empty one first.
    pub(crate) fn names(&self) -> Vec<String> {
        let default = Some(self.default.clone()).filter(|name| !name.is_empty());
        std::iter::once(String::new()).chain(default).chain(self.oci.keys().cloned()).collect()
    }

    /// Returns the handlers in the order of [`Self::names`].
    pub(crate) fn info(&self) -> Vec<HandlerInfo> {
        let info = |name: String| {
            let native = matches!(self.get(&name), Ok(Handler::Native));
            HandlerInfo { name, recursive_readonly_mounts: native, user_namespaces: native }
        };
        self.names().into_iter().map(info).collect()
    }

    /// Returns the handler with this name.
    ///
    /// # Errors
    /// `InvalidArgument` if no handler of this name is configured.
    pub(crate) fn get(&self, name: &str) -> Result<Handler<'_>, Error> {
        if name.is_empty() || name == self.default {
            return Ok(Handler::Native);
        }
        if let Some(handler) = self.oci.get(name) {
            return Ok(Handler::Oci(handler));
        }
        let quote = |name: &String| match name.is_empty() {
            true => "the default one, without a name".to_owned(),
            false => format!("{name:?}"),
        };
        let configured: Vec<String> = self.names().iter().map(quote).collect();
        Err(Error::invalid(format!(
            "runtime handler {name:?} is not configured on this node; configured: {}; remove runtimeClassName from the \
             pod, name a RuntimeClass with one of these, or add [handlers.{name}] to the configuration",
            configured.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_found_by_its_name_and_an_unknown_one_is_refused() {
        let crun = OciHandler { name: "crun".into(), ..OciHandler::default() };
        let handlers = Handlers::new("pinion".into(), [crun]);
        assert!(matches!(handlers.get(""), Ok(Handler::Native)));
        assert!(matches!(handlers.get("pinion"), Ok(Handler::Native)));
        assert!(matches!(handlers.get("crun"), Ok(Handler::Oci(handler)) if handler.name == "crun"));
        assert_eq!(handlers.names(), ["", "pinion", "crun"]);
        let features = handlers.info().into_iter().map(|info| (info.recursive_readonly_mounts, info.user_namespaces));
        assert_eq!(features.collect::<Vec<_>>(), [(true, true), (true, true), (false, false)]);
        let error = handlers.get("kata").err().map(|error| error.message).unwrap_or_default();
        assert!(error.contains("configured: the default one, without a name, \"pinion\", \"crun\""), "{error}");
    }
}
