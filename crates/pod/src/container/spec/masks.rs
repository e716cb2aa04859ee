//! Paths of /proc and /sys that tell too much, or change the node.

use oci::{DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};

use crate::Security;

pub(super) fn masked(security: &Security) -> Vec<String> {
    choose(security, &security.masked_paths, &DEFAULT_MASKED_PATHS)
}

pub(super) fn readonly(security: &Security) -> Vec<String> {
    choose(security, &security.readonly_paths, &DEFAULT_READONLY_PATHS)
}

fn choose(security: &Security, given: &Option<Vec<String>>, default: &[&str]) -> Vec<String> {
    match given {
        _ if security.privileged => Vec::new(),
        None => default.iter().map(|path| (*path).to_owned()).collect(),
        Some(given) => given.clone(),
    }
}
