use std::path::{Path, PathBuf};

use cri_proto::v1;
use pod::{DeviceMapping, ImageVolume, MOUNTS_MAX, Propagation, Volume, oci};

use super::field;
use crate::Failure;

/// Most devices of one container.
const MAX: usize = 4096;
/// Most ranges in one map of ids: the kernel's own bound (user_namespaces(7)).
const MAPPINGS_MAX: usize = 340;
/// What a bind mount can be told (runtime specification, "Linux mount options"); each also for all below, with an `r`
/// before.
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

/// The mounts of a container.
pub(super) fn volumes(at: &str, messages: &[v1::Mount]) -> Result<Vec<Volume>, Failure> {
    bounded(at, messages.len(), MOUNTS_MAX)?;
    messages.iter().enumerate().map(|(index, message)| volume(&format!("{at}[{index}]"), message)).collect()
}

fn volume(at: &str, message: &v1::Mount) -> Result<Volume, Failure> {
    let at_container = format!("{at}.container_path");
    let container_path = field::path_inside(&at_container, &message.container_path)?;
    if Path::new(&container_path).parent().is_none() {
        return Err(Failure::invalid(&at_container, "\"/\" is the container's root itself"));
    }
    let image = image(at, message)?;
    let propagation = match field::known(&format!("{at}.propagation"), message.propagation)? {
        v1::MountPropagation::PropagationPrivate => Propagation::Private,
        v1::MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        v1::MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    // All image mounts are read-only, whatever is said.
    let readonly = message.readonly || image.is_some();
    if message.recursive_read_only && (!readonly || propagation != Propagation::Private) {
        return Err(Failure::invalid(&format!("{at}.recursive_read_only"), "needs readonly and private propagation"));
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

/// `image` and `image_sub_path`, which exclude `host_path` and whatever would write.
fn image(at: &str, message: &v1::Mount) -> Result<Option<ImageVolume>, Failure> {
    // A client that writes the field empty means none.
    let Some(image) = message.image.as_ref().filter(|image| !image.image.is_empty() || message.host_path.is_empty())
    else {
        return match message.image_sub_path.is_empty() {
            true => Ok(None),
            false => Err(Failure::invalid(&format!("{at}.image_sub_path"), "needs image")),
        };
    };
    if !message.host_path.is_empty() {
        return Err(Failure::invalid(&format!("{at}.host_path"), "must be empty where image is given"));
    }
    if message.propagation != v1::MountPropagation::PropagationPrivate as i32 {
        return Err(Failure::invalid(&format!("{at}.propagation"), "of an image must be private"));
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
                format_args!("{word:?} says nothing of a bind mount; known are {}", OPTIONS.join(", ")),
            ));
        }
        if readonly && bare == "rw" {
            return Err(Failure::invalid(&at, format_args!("{word:?} contradicts readonly")));
        }
    }
    Ok(words.to_vec())
}

fn mappings(at: &str, message: &v1::Mount) -> Result<(Vec<oci::IdMapping>, Vec<oci::IdMapping>), Failure> {
    let uids = ids(&format!("{at}.uidMappings"), &message.uid_mappings)?;
    let gids = ids(&format!("{at}.gidMappings"), &message.gid_mappings)?;
    match (uids.is_empty(), gids.is_empty()) {
        (true, false) => Err(Failure::invalid(&format!("{at}.uidMappings"), "is needed beside gidMappings")),
        (false, true) => Err(Failure::invalid(&format!("{at}.gidMappings"), "is needed beside uidMappings")),
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
                format_args!("{} ids from {} and {}", message.length, message.host_id, message.container_id),
            ));
        }
        let v1::IdMapping { host_id, container_id, length } = *message;
        Ok(oci::IdMapping { container_id, host_id, size: length })
    };
    messages.iter().enumerate().map(range).collect()
}

/// The devices of a container.
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
            format_args!("{permissions:?} contains {bad:?}; of \"rwm\" only"),
        ));
    }
    Ok(DeviceMapping { container_path, host_path, permissions: permissions.to_owned() })
}

fn bounded(at: &str, count: usize, most: usize) -> Result<(), Failure> {
    match count > most {
        true => Err(Failure::invalid(at, format_args!("{count} entries; at most {most}"))),
        false => Ok(()),
    }
}
