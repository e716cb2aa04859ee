use std::path::{Path, PathBuf};

use cri_proto::v1;
use pod::{DeviceMapping, ImageVolume, MOUNTS_MAX, Propagation, Volume, oci};

use super::field;
use crate::Failure;

/// Maximum devices of one container.
const MAX: usize = 4096;
/// Maximum ranges in one id mapping, which is the kernel's limit (user_namespaces(7)).
const MAPPINGS_MAX: usize = 340;
/// Options of bind mounts (runtime specification, "Linux mount options"). With the prefix `r` each applies recursively.
const OPTIONS: [&str; 17] = [
    "ro",
    "rw",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "exec",
    "noatime",
    "atime",
    "nodiratime",
    "diratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nosymfollow",
    "symfollow",
];

/// Validates the mounts of a container.
pub(super) fn volumes(at: &str, messages: &[v1::Mount]) -> Result<Vec<Volume>, Failure> {
    bounded(at, messages.len(), MOUNTS_MAX)?;
    messages.iter().enumerate().map(|(index, message)| volume(&format!("{at}[{index}]"), message)).collect()
}

fn volume(at: &str, message: &v1::Mount) -> Result<Volume, Failure> {
    let at_container = format!("{at}.container_path");
    let container_path = field::path_inside(&at_container, &message.container_path)?;
    if Path::new(&container_path).parent().is_none() {
        return Err(Failure::invalid(&at_container, "\"/\" is the root of the container and cannot be a mount point"));
    }
    let image = image(at, message)?;
    let propagation = match field::known(&format!("{at}.propagation"), message.propagation)? {
        v1::MountPropagation::PropagationPrivate => Propagation::Private,
        v1::MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        v1::MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    // Image mounts are always read-only.
    let readonly = message.readonly || image.is_some();
    if message.recursive_read_only && (!readonly || propagation != Propagation::Private) {
        return Err(Failure::invalid(
            &format!("{at}.recursive_read_only"),
            "requires readonly and private propagation",
        ));
    }
    let (uid_mappings, gid_mappings) = mappings(at, message)?;
    Ok(Volume {
        container_path,
        host_path: match &image {
            Some(_) => PathBuf::new(),
            None => field::absolute_path(&format!("{at}.host_path"), &message.host_path)?,
        },
        options: options(&format!("{at}.mount_options"), &message.mount_options, readonly)?,
        uid_mappings,
        gid_mappings,
        image,
        readonly,
        recursive_readonly: message.recursive_read_only,
        propagation,
        selinux_relabel: message.selinux_relabel,
    })
}

/// Validates `image` and `image_sub_path`, which exclude `host_path` and propagation.
fn image(at: &str, message: &v1::Mount) -> Result<Option<ImageVolume>, Failure> {
    // Some clients set the field to an empty message, which means that no image is requested.
    let Some(image) = message.image.as_ref().filter(|image| !image.image.is_empty() || message.host_path.is_empty())
    else {
        return match message.image_sub_path.is_empty() {
            true => Ok(None),
            false => Err(Failure::invalid(&format!("{at}.image_sub_path"), "requires image")),
        };
    };
    if !message.host_path.is_empty() {
        return Err(Failure::invalid(&format!("{at}.host_path"), "must be empty if image is set"));
    }
    if message.propagation != v1::MountPropagation::PropagationPrivate as i32 {
        return Err(Failure::invalid(&format!("{at}.propagation"), "must be private for an image"));
    }
    Ok(Some(ImageVolume {
        image: field::word(&format!("{at}.image.image"), &image.image)?,
        image_ref: field::text(&format!("{at}.image.image_ref"), &image.image_ref)?,
        sub_path: field::relative_path(&format!("{at}.image_sub_path"), &message.image_sub_path)?,
    }))
}

fn options(at: &str, words: &[String], readonly: bool) -> Result<Vec<String>, Failure> {
    bounded(at, words.len(), 2 * OPTIONS.len())?;
    for (index, word) in words.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let bare = if OPTIONS.contains(&word.as_str()) { word } else { word.strip_prefix('r').unwrap_or(word) };
        if !OPTIONS.contains(&bare) {
            return Err(Failure::invalid(
                &at,
                format_args!("{word:?} is not a supported option of a bind mount; supported: {}", OPTIONS.join(", ")),
            ));
        }
        if readonly && bare == "rw" {
            return Err(Failure::invalid(&at, format_args!("{word:?} conflicts with readonly")));
        }
    }
    Ok(words.to_vec())
}

fn mappings(at: &str, message: &v1::Mount) -> Result<(Vec<oci::IdMapping>, Vec<oci::IdMapping>), Failure> {
    let uids = ids(&format!("{at}.uidMappings"), &message.uid_mappings)?;
    let gids = ids(&format!("{at}.gidMappings"), &message.gid_mappings)?;
    match (uids.is_empty(), gids.is_empty()) {
        (true, false) => Err(Failure::invalid(&format!("{at}.uidMappings"), "is required if gidMappings is set")),
        (false, true) => Err(Failure::invalid(&format!("{at}.gidMappings"), "is required if uidMappings is set")),
        _ => Ok((uids, gids)),
    }
}

fn ids(at: &str, messages: &[v1::IdMapping]) -> Result<Vec<oci::IdMapping>, Failure> {
    bounded(at, messages.len(), MAPPINGS_MAX)?;
    let range = |(index, message): (usize, &v1::IdMapping)| {
        let at = format!("{at}[{index}]");
        let ends = [message.host_id, message.container_id].map(|first| first.checked_add(message.length));
        if message.length == 0 || ends.contains(&None) {
            return Err(Failure::invalid(
                &format!("{at}.length"),
                format_args!(
                    "{} ids from {} and {} are not a valid range",
                    message.length, message.host_id, message.container_id
                ),
            ));
        }
        let v1::IdMapping { host_id, container_id, length } = *message;
        Ok(oci::IdMapping { container_id, host_id, size: length })
    };
    messages.iter().enumerate().map(range).collect()
}

/// Validates the devices of a container.
pub(super) fn devices(at: &str, messages: &[v1::Device]) -> Result<Vec<DeviceMapping>, Failure> {
    bounded(at, messages.len(), MAX)?;
    messages.iter().enumerate().map(|(index, message)| device(&format!("{at}[{index}]"), message)).collect()
}

fn device(at: &str, message: &v1::Device) -> Result<DeviceMapping, Failure> {
    let host_path = field::absolute_path(&format!("{at}.host_path"), &message.host_path)?;
    let container_path = match message.container_path.as_str() {
        "" => message.host_path.clone(),
        path => field::path_inside(&format!("{at}.container_path"), path)?,
    };
    let permissions = match message.permissions.as_str() {
        "" => "rwm",
        permissions => permissions,
    };
    if let Some(bad) = permissions.chars().find(|c| !matches!(c, 'r' | 'w' | 'm')) {
        return Err(Failure::invalid(
            &format!("{at}.permissions"),
            format_args!("{permissions:?} contains {bad:?}; only r, w and m are allowed"),
        ));
    }
    Ok(DeviceMapping { container_path, host_path, permissions: permissions.to_owned() })
}

fn bounded(at: &str, count: usize, max: usize) -> Result<(), Failure> {
    match count > max {
        true => Err(Failure::invalid(at, format_args!("{count} entries; at most {max}"))),
        false => Ok(()),
    }
}
