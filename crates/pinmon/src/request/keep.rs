use monitor_api::{Attachments, Reply, Role};

use super::Answer;
use crate::{failure::invalid, monitor::Monitor};

const KEY_MAX: usize = 256;

/// Keeps descriptors open under a key, replacing the previous ones.
pub(super) fn keep(monitor: &mut Monitor, key: String, attachments: Attachments) -> Answer {
    if key.is_empty() || key.len() > KEY_MAX {
        return Err(invalid(format!("keep: invalid key of {} bytes; must have 1 to {KEY_MAX}", key.len())));
    }
    let mut files: Vec<_> = attachments
        .into_iter()
        .filter_map(|(role, fd)| match role {
            Role::Kept(n) => Some((n, fd)),
            _ => None,
        })
        .collect();
    files.sort_by_key(|(n, _)| *n);
    monitor.keyed_descriptors.insert(key, files.into_iter().map(|(_, fd)| fd).collect());
    Ok(Some(Reply::Done))
}

/// Closes the descriptors of a key.
pub(super) fn release(monitor: &mut Monitor, key: &str) -> Answer {
    monitor.keyed_descriptors.remove(key);
    Ok(Some(Reply::Done))
}
