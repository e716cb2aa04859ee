use cri_proto::v1::{IdMapping, NamespaceMode, UserNamespace};
use pod::{UserMappings, oci};

use super::field;
use crate::Failure;

/// Maximum ranges in one id mapping, which is the kernel's limit (user_namespaces(7)).
const RANGES_MAX: usize = 340;

/// Validates the user namespace of a pod, which the messages of its containers repeat. `None`: no user namespace.
pub(super) fn mappings(at: &str, options: Option<&UserNamespace>) -> Result<Option<UserMappings>, Failure> {
    let Some(options) = options else { return Ok(None) };
    let mode = format!("{at}.mode");
    match field::known(&mode, options.mode)? {
        NamespaceMode::Pod => Ok(Some(UserMappings {
            uids: map(&format!("{at}.uids"), &options.uids)?,
            gids: map(&format!("{at}.gids"), &options.gids)?,
        })),
        NamespaceMode::Node => {
            for (name, ranges) in [("uids", &options.uids), ("gids", &options.gids)] {
                if !ranges.is_empty() {
                    return Err(Failure::invalid(&format!("{at}.{name}"), "must be empty if mode is NODE"));
                }
            }
            Ok(None)
        }
        other => {
            Err(Failure::invalid(&mode, format_args!("{} is not allowed here; use POD or NODE", other.as_str_name())))
        }
    }
}

/// Validates a map as the kernel does when the map is written, and rejects maps that include root of the node.
fn map(at: &str, messages: &[IdMapping]) -> Result<Vec<oci::IdMapping>, Failure> {
    if messages.is_empty() {
        return Err(Failure::invalid(at, "is missing; a user namespace requires uids and gids"));
    }
    if messages.len() > RANGES_MAX {
        return Err(Failure::invalid(at, format_args!("{} entries; at most {RANGES_MAX}", messages.len())));
    }
    for (index, message) in messages.iter().enumerate() {
        range(&format!("{at}[{index}]"), message)?;
    }
    if !messages.iter().any(|message| message.container_id == 0) {
        return Err(Failure::invalid(
            at,
            "container id 0 is not mapped, but root owns the files that are set up in a container",
        ));
    }
    reject_overlaps(at, "container", messages.iter().map(|message| (message.container_id, message.length)))?;
    reject_overlaps(at, "host", messages.iter().map(|message| (message.host_id, message.length)))?;
    let range = |m: &IdMapping| oci::IdMapping { container_id: m.container_id, host_id: m.host_id, size: m.length };
    Ok(messages.iter().map(range).collect())
}

fn range(at: &str, message: &IdMapping) -> Result<(), Failure> {
    if message.length == 0 {
        return Err(Failure::invalid(&format!("{at}.length"), "must be greater than 0"));
    }
    for (name, first) in [("container_id", message.container_id), ("host_id", message.host_id)] {
        // 2^32 - 1 is not a valid id.
        if u64::from(first) + u64::from(message.length) > u64::from(u32::MAX) {
            return Err(Failure::invalid(
                &format!("{at}.{name}"),
                format_args!("{} ids from {first} exceed the last id, {}", message.length, u32::MAX - 1),
            ));
        }
    }
    match message.host_id {
        0 => Err(Failure::invalid(&format!("{at}.host_id"), "0 is root of the node and cannot be mapped into a pod")),
        _ => Ok(()),
    }
}

fn reject_overlaps(at: &str, side: &str, ranges: impl Iterator<Item = (u32, u32)>) -> Result<(), Failure> {
    let mut ranges: Vec<(u32, u32)> = ranges.collect();
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[1].0 - pair[0].0 < pair[0].1) {
        Some(pair) => {
            Err(Failure::invalid(at, format_args!("{side} ids from {} and from {} overlap", pair[0].0, pair[1].0)))
        }
        None => Ok(()),
    }
}
