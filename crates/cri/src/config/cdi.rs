use std::collections::HashMap;

use cri_proto::v1;
use pod::CdiName;

use crate::Failure;

/// Most CDI devices of one container.
const MAX: usize = 1024;
/// Annotations that ask for CDI devices: what device plugins used before the CRI had a field.
const ANNOTATION: &str = "cdi.k8s.io/";

/// Full names, each once: those of the field first, then those of the annotations (as containerd and CRI-O read both).
pub(super) fn devices(
    messages: &[v1::CdiDevice],
    annotations: &HashMap<String, String>,
) -> Result<Vec<String>, Failure> {
    let mut asked: Vec<(String, &str)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        asked.push((format!("config.CDI_devices[{index}].name"), message.name.as_str()));
    }
    let mut keys: Vec<_> = annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).collect();
    keys.sort();
    for (key, value) in keys {
        asked.extend(value.split(',').map(|name| (format!("config.annotations[{key}]"), name)));
    }
    if asked.len() > MAX {
        return Err(Failure::invalid("config.CDI_devices", format_args!("{} devices; at most {MAX}", asked.len())));
    }
    let mut names: Vec<String> = Vec::new();
    for (at, name) in asked {
        CdiName::parse(name).map_err(|e| Failure::invalid(&at, e))?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
