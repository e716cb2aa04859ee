use std::collections::HashMap;

use cri_proto::v1;
use pod::CdiName;

use crate::Failure;

/// Maximum CDI devices of one container.
const MAX: usize = 1024;
/// Prefix of annotations that request CDI devices; device plugins used them before the CRI had a field.
const ANNOTATION: &str = "cdi.k8s.io/";

/// Returns the full device names without duplicates: first those of the field, then those of the annotations.
/// containerd and CRI-O read both too.
pub(super) fn devices(
    messages: &[v1::CdiDevice],
    annotations: &HashMap<String, String>,
) -> Result<Vec<String>, Failure> {
    let mut requested: Vec<(String, &str)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        requested.push((format!("config.CDI_devices[{index}].name"), message.name.as_str()));
    }
    let mut keys: Vec<_> = annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).collect();
    keys.sort();
    for (key, value) in keys {
        requested.extend(value.split(',').map(|name| (format!("config.annotations[{key}]"), name)));
    }
    if requested.len() > MAX {
        return Err(Failure::invalid("config.CDI_devices", format_args!("{} devices; at most {MAX}", requested.len())));
    }
    let mut names: Vec<String> = Vec::new();
    for (at, name) in requested {
        CdiName::parse(name).map_err(|e| Failure::invalid(&at, e))?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
