//! CDI devices: the edits that the specifications of the requested devices demand.

use oci::Mount;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use syscall::mount_attributes::MountAttributes;

use super::volume::{self, Depth};
use crate::{Error, container::spec::ExtraMount, error::failed, parts::Parts};

/// Resolves devices by the current specification files. Blocks.
pub(crate) fn edits(parts: &Parts, devices: &[String]) -> Result<cdi::Edits, Error> {
    if devices.is_empty() {
        return Ok(cdi::Edits::default());
    }
    let invalid = |e: cdi::Error| Error::invalid(e.to_string());
    let names: Result<Vec<_>, _> = devices.iter().map(|name| cdi::Name::parse(name)).collect();
    parts.node.cdi.resolve(&names.map_err(invalid)?).map_err(invalid)
}

/// Opens the mounts of the edits on the node. Of several mounts on one path the last one counts.
pub(crate) fn mounts(edits: &cdi::Edits) -> Result<Vec<ExtraMount>, Error> {
    let mut extras: Vec<ExtraMount> = Vec::new();
    for mount in &edits.mounts {
        let entry = mount.to_oci();
        let tree = match mount.is_bind() {
            true => Some(open(&entry).map_err(|e| e.during(format_args!("CDI mount on {}", entry.destination)))?),
            false => None,
        };
        extras.retain(|extra| extra.entry.destination != entry.destination);
        extras.push(ExtraMount { entry, tree });
    }
    Ok(extras)
}

/// Opens the source of a bind mount on the node.
pub(crate) fn open(entry: &Mount) -> Result<rustix::fd::OwnedFd, Error> {
    let source = entry.source.as_deref().unwrap_or_default();
    let has_option = |word: &str| entry.options.iter().any(|option| option.strip_prefix('r').unwrap_or(option) == word);
    let depth = if entry.options.iter().any(|word| word == "rbind") { Depth::All } else { Depth::Top };
    let tree = volume::clone(source.as_ref(), depth)
        .map_err(|errno| Error::invalid(format!("{source} on the node: {errno}")))?;
    let propagation = match (has_option("shared"), has_option("slave")) {
        // The clone is in the peer group of its source.
        (true, _) => return Ok(tree),
        (_, true) => MountPropagationFlags::DOWNSTREAM,
        _ => MountPropagationFlags::PRIVATE,
    };
    let attributes =
        MountAttributes { propagation: Some(propagation), set: MountAttrFlags::empty(), ..MountAttributes::default() };
    attributes.apply(&tree, true).map_err(failed(format_args!("set the propagation of {source}")))?;
    Ok(tree)
}
