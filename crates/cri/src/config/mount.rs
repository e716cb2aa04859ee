use cri_proto::v1;
use pod::{DeviceMapping, Propagation, Volume};

use super::field;
use crate::Failure;

/// Most mounts and devices of one container.
const MAX: usize = 4096;

/// The mounts of a container.
pub(super) fn volumes(at: &str, messages: &[v1::Mount]) -> Result<Vec<Volume>, Failure> {
    bounded(at, messages.len())?;
    messages.iter().enumerate().map(|(index, message)| volume(&format!("{at}[{index}]"), message)).collect()
}

fn volume(at: &str, message: &v1::Mount) -> Result<Volume, Failure> {
    let at_container = format!("{at}.container_path");
    let container_path = field::absolute_path(&at_container, &message.container_path)?;
    if container_path.parent().is_none() {
        return Err(Failure::invalid(&at_container, "\"/\" is the container's root itself"));
    }
    if message.image.as_ref().is_some_and(|image| !image.image.is_empty()) {
        return Err(Failure::invalid(&format!("{at}.image"), "images as volumes are not supported yet"));
    }
    if !message.uid_mappings.is_empty() || !message.gid_mappings.is_empty() {
        return Err(Failure::invalid(&format!("{at}.uidMappings"), "mounts with mapped ids are not supported yet"));
    }
    if !message.mount_options.is_empty() {
        return Err(Failure::invalid(
            &format!("{at}.mount_options"),
            "mount options are not supported yet (Status says so)",
        ));
    }
    let propagation = match field::known(&format!("{at}.propagation"), message.propagation)? {
        v1::MountPropagation::PropagationPrivate => Propagation::Private,
        v1::MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        v1::MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    if message.recursive_read_only && (!message.readonly || propagation != Propagation::Private) {
        return Err(Failure::invalid(&format!("{at}.recursive_read_only"), "needs readonly and private propagation"));
    }
    Ok(Volume {
        container_path: message.container_path.clone(),
        host_path: field::absolute_path(&format!("{at}.host_path"), &message.host_path)?,
        readonly: message.readonly,
        recursive_readonly: message.recursive_read_only,
        propagation,
        selinux_relabel: message.selinux_relabel,
    })
}

/// The devices of a container.
pub(super) fn devices(at: &str, messages: &[v1::Device]) -> Result<Vec<DeviceMapping>, Failure> {
    bounded(at, messages.len())?;
    messages.iter().enumerate().map(|(index, message)| device(&format!("{at}[{index}]"), message)).collect()
}

fn device(at: &str, message: &v1::Device) -> Result<DeviceMapping, Failure> {
    let host_path = field::absolute_path(&format!("{at}.host_path"), &message.host_path)?;
    let container_path = match message.container_path.as_str() {
        "" => message.host_path.clone(),
        path => field::absolute_path(&format!("{at}.container_path"), path).map(|_| path.to_owned())?,
    };
    let permissions = match message.permissions.as_str() {
        "" => "rwm",
        permissions => permissions,
    };
    if let Some(bad) = permissions.chars().find(|c| !matches!(c, 'r' | 'w' | 'm')) {
        return Err(Failure::invalid(
            &format!("{at}.permissions"),
            format_args!("{permissions:?} contains {bad:?}; of \"rwm\" only"),
        ));
    }
    Ok(DeviceMapping { container_path, host_path, permissions: permissions.to_owned() })
}

fn bounded(at: &str, count: usize) -> Result<(), Failure> {
    match count > MAX {
        true => Err(Failure::invalid(at, format_args!("{count} entries; at most {MAX}"))),
        false => Ok(()),
    }
}
