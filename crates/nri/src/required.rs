//! Plugins without which a container must not be created.

use std::collections::BTreeMap;

use crate::{Config, Error};

/// Annotations that name further required plugins of a pod or of one container. The first is the current one.
const ANNOTATIONS: [&str; 2] = ["required-plugins.noderesource.dev", "required-plugins.nri.io"];
/// Most plugins that an annotation may name.
const NAMES_MAX: usize = 64;

/// Returns the names of the plugins that a container needs, each once. `container` is empty for the pod itself.
///
/// # Errors
/// If an annotation cannot be understood: the pod is not started without a plugin that it may need.
pub(crate) fn required(
    config: &Config,
    annotations: &BTreeMap<String, String>,
    container: &str,
) -> Result<Vec<String>, Error> {
    let invalid = |key: &str, value: &str| Error::refused(format!("annotation {key}: {value:?} is not understood"));
    let key = config.restrictions.tolerate_missing_annotation.as_str();
    match effective(annotations, key, container).filter(|_| !key.is_empty()) {
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => return Ok(Vec::new()),
        Some("false" | "False" | "FALSE" | "f" | "F" | "0") | None => {}
        Some(other) => return Err(invalid(key, other)),
    }
    let mut names = config.required.clone();
    for key in ANNOTATIONS {
        if let Some(value) = effective(annotations, key, container) {
            names.extend(list(value).ok_or_else(|| invalid(key, value))?);
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the value of an annotation for a container: `<key>/container.<name>`, `<key>/pod` or `<key>`.
fn effective<'a>(annotations: &'a BTreeMap<String, String>, key: &str, container: &str) -> Option<&'a str> {
    if annotations.is_empty() {
        return None;
    }
    let keys = [format!("{key}/container.{container}"), format!("{key}/pod"), key.to_owned()];
    keys.iter().find_map(|key| annotations.get(key)).map(String::as_str)
}

/// Parses a list of names as YAML has it: `[a, "b"]`, or lines that begin with `- `.
fn list(value: &str) -> Option<Vec<String>> {
    let value = value.trim();
    let items: Vec<&str> = match value.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?.split(',').map(str::trim).filter(|item| !item.is_empty()).collect(),
        None => value
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| line.trim().strip_prefix('-').map(str::trim))
            .collect::<Option<_>>()?,
    };
    let is_name =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b));
    let quoted = |item: &str| {
        let inner = |quote| item.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        inner('"').or_else(|| inner('\'')).unwrap_or(item).to_owned()
    };
    let names: Vec<String> = items.into_iter().map(quoted).collect();
    (names.len() <= NAMES_MAX && names.iter().all(|name| is_name(&name.as_str()))).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(required: &[&str], tolerate: &str) -> Config {
        let restrictions =
            crate::Restrictions { tolerate_missing_annotation: tolerate.to_owned(), ..crate::Restrictions::default() };
        Config {
            socket: None,
            plugin_dir: "/nonexistent".into(),
            plugin_config_dir: "/nonexistent".into(),
            registration_timeout: std::time::Duration::from_secs(5),
            request_timeout: std::time::Duration::from_secs(2),
            required: required.iter().map(|name| (*name).to_owned()).collect(),
            restrictions,
            process_record: "/nonexistent".into(),
            runtime_name: String::new(),
            runtime_version: String::new(),
        }
    }

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lists_are_parsed_in_both_forms_of_yaml() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(list("[a, \"b\"]"), names(&["a", "b"]));
        assert_eq!(list("- a\n- 'b'\n"), names(&["a", "b"]));
        assert_eq!(list("[]"), names(&[]));
        assert_eq!((list("a"), list("[a b]"), list("[a")), (None, None, None));
    }

    #[test]
    fn a_pod_can_require_more_plugins_than_the_node() {
        let key = "required-plugins.noderesource.dev";
        let (pod, container) = (format!("{key}/pod"), format!("{key}/container.web"));
        let annotations = annotations(&[(&pod, "[b]"), (&container, "[c]"), ("required-plugins.nri.io", "[d]")]);
        let config = config(&["a"], "");
        assert_eq!(required(&config, &annotations, "web").expect("valid"), ["a", "c", "d"]);
        assert_eq!(required(&config, &annotations, "db").expect("valid"), ["a", "b", "d"]);
    }

    #[test]
    fn absence_is_tolerated_only_where_the_node_permits_it_and_an_unknown_value_is_refused() {
        let annotations = annotations(&[("tolerate", "true"), ("bad", "perhaps")]);
        assert_eq!(required(&config(&["a"], ""), &annotations, "web").expect("valid"), ["a"]);
        assert!(required(&config(&["a"], "tolerate"), &annotations, "web").expect("valid").is_empty());
        required(&config(&["a"], "bad"), &annotations, "web").expect_err("refused");
    }
}
