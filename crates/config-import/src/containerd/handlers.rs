//! `runtimes.NAME`: those of containerd's shim for runc become handlers of kind `oci`.

use toml::Value;

use super::RUNTIME;
use crate::{
    Finding, Outcome,
    handlers::{Handler, finding, program, split},
    source::Setting,
};

/// Shims that execute a program with the command line of runc.
const RUNC_SHIMS: [&str; 2] = ["io.containerd.runc.v2", "io.containerd.runc.v1"];
/// Program of these shims unless another is set, and the name of the handler that Pinion itself replaces.
const RUNC: &str = "runc";
const OTHER_SHIM: &str = "not translated: its shim is not that of runc; configure what it runs as [handlers.NAME] \
                          (docs/handlers.md), or remove its RuntimeClass";
const NOT_FOUND: &str = "not translated: its program is not on this node; install it and add [handlers.NAME] with its path \
                         (docs/handlers.md), or remove its RuntimeClass";

/// Removes the settings of handlers that are translated or reported as a whole, and returns what becomes of them. The
/// default handler is Pinion itself if it is runc.
pub(super) fn take(settings: &mut Vec<Setting>, default: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = ["plugins", RUNTIME, "containerd", "runtimes"];
    for (name, own) in split(settings, &table) {
        let mut handler = Handler { name: &name, depth: table.len() + 1, settings: own };
        if name != default || name != RUNC && handler.text(&["options", "BinaryName"]).is_some() {
            findings.extend(translate(&mut handler));
        }
        // The rules report the remaining keys.
        settings.extend(handler.settings);
    }
    findings
}

fn translate(handler: &mut Handler<'_>) -> Vec<Finding> {
    let is_runc = handler.text(&["runtime_type"]).is_none_or(|kind| RUNC_SHIMS.contains(&kind));
    let binary = program(handler.text(&["options", "BinaryName"]).unwrap_or(RUNC));
    let (true, Some(binary)) = (is_runc, binary) else {
        let whole = handler.unserved(if is_runc { NOT_FOUND } else { OTHER_SHIM });
        handler.settings.clear();
        return whole.into_iter().collect();
    };
    let mut findings = Vec::new();
    let value = Value::String(binary);
    let (first, named) = (handler.settings.first().cloned(), handler.take(&["options", "BinaryName"]));
    findings.extend(named.or(first).map(|setting| handler.translated(&setting, &["binary"], value)));
    findings.extend(handler.same(&["options", "Root"], "root"));
    if let Some(setting) = handler.take(&["options", "SystemdCgroup"]) {
        let reason = "runtimes get the driver of the node: `cgroup.driver`";
        findings.push(finding(&setting, Outcome::Unneeded(reason.to_owned())));
    }
    for key in
        ["privileged_without_host_devices", "privileged_without_host_devices_all_devices_allowed", "base_runtime_spec"]
    {
        findings.extend(handler.same(&[key], key));
    }
    for key in ["pod_annotations", "container_annotations"] {
        let Some(setting) = handler.take(&[key]) else { continue };
        findings.push(match annotations(&setting.value) {
            Ok(patterns) => handler.translated(&setting, &["allowed_annotations"], patterns),
            Err(reason) => finding(&setting, Outcome::Unserved(reason)),
        });
    }
    findings
}

/// Returns patterns of annotations if Pinion has the same ones: a `*` at the end.
fn annotations(value: &Value) -> Result<Value, String> {
    let items = value.as_array().cloned().unwrap_or_default();
    let is_other = |item: &&Value| {
        let text = item.as_str().unwrap_or("?");
        text.strip_suffix('*').unwrap_or(text).contains(['*', '?', '[', '\\'])
    };
    match items.iter().find(is_other) {
        Some(other) => {
            Err(format!("{other}: only a * at the end of a pattern is possible; set handlers.NAME.allowed_annotations"))
        }
        None => Ok(Value::Array(items)),
    }
}
