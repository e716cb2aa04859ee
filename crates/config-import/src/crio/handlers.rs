//! `[crio.runtime.runtimes.NAME]`: those of type `oci` become handlers.

use toml::Value;

use crate::{
    Finding, Outcome,
    handlers::{Handler, finding, program, split},
    source::Setting,
};

/// Handlers that Pinion itself replaces if they are the default.
const REPLACED: [&str; 2] = ["crun", "runc"];
const OTHER_TYPE: &str = "not translated: it is not of type oci; configure what it runs as [handlers.NAME] \
                          (docs/handlers.md), or remove its RuntimeClass";
const NOT_FOUND: &str = "not translated: its program is not on this node; install it and add [handlers.NAME] with its path \
                         (docs/handlers.md), or remove its RuntimeClass";

/// Removes the settings of handlers that are translated or reported as a whole, and returns what becomes of them. The
/// default handler is Pinion itself if it is crun or runc.
pub(super) fn take(settings: &mut Vec<Setting>, default: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = ["crio", "runtime", "runtimes"];
    for (name, own) in split(settings, &table) {
        let mut handler = Handler { name: &name, depth: table.len() + 1, settings: own };
        if name != default || !REPLACED.contains(&name.as_str()) {
            findings.extend(translate(&mut handler));
        }
        // The rules report the remaining keys.
        settings.extend(handler.settings);
    }
    findings
}

fn translate(handler: &mut Handler<'_>) -> Vec<Finding> {
    let is_oci = handler.text(&["runtime_type"]).is_none_or(|kind| kind == "oci");
    let binary = program(handler.text(&["runtime_path"]).unwrap_or(handler.name));
    let (true, Some(binary)) = (is_oci, binary) else {
        let whole = handler.unserved(if is_oci { NOT_FOUND } else { OTHER_TYPE });
        handler.settings.clear();
        return whole.into_iter().collect();
    };
    let mut findings = Vec::new();
    let value = Value::String(binary);
    let (first, named) = (handler.settings.first().cloned(), handler.take(&["runtime_path"]));
    findings.extend(named.or(first).map(|setting| handler.translated(&setting, &["binary"], value)));
    findings.extend(handler.same(&["runtime_root"], "root"));
    findings.extend(handler.same(&["monitor_env"], "environment"));
    findings.extend(handler.same(&["privileged_without_host_devices"], "privileged_without_host_devices"));
    if let Some(setting) = handler.take(&["allowed_annotations"]) {
        // CRI-O compares prefixes.
        let prefixes = setting.value.as_array().into_iter().flatten().filter_map(Value::as_str);
        let patterns = prefixes.map(|prefix| Value::String(format!("{prefix}*"))).collect();
        findings.push(handler.translated(&setting, &["allowed_annotations"], Value::Array(patterns)));
    }
    for setting in handler.take_below("default_annotations") {
        let name = setting.path.last().cloned().unwrap_or_default();
        findings.push(match &setting.value {
            Value::String(_) => handler.translated(&setting, &["default_annotations", &name], setting.value.clone()),
            _ => finding(&setting, Outcome::Unserved("is not a string".to_owned())),
        });
    }
    findings
}
