//! Mount options of the specification's table, fstab(5) and mount(8), converted for the mount API.

use std::io;

use rustix::{
    fd::AsFd,
    mount::{MountAttrFlags, MountPropagationFlags},
};
use syscall::mount_attributes::MountAttributes;

use crate::Error;

/// Propagation of mounts to and from other mount namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Propagation {
    pub(crate) flags: MountPropagationFlags,
    pub(crate) recursive: bool,
}

impl Propagation {
    pub(crate) fn apply(self, mount: impl AsFd) -> io::Result<()> {
        MountAttributes { propagation: Some(self.flags), ..Default::default() }.apply(mount, self.recursive)
    }
}

/// The parsed options of a mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Attributes of the mount itself.
    pub(crate) attributes: MountAttributes,
    /// Attributes of the mount and all mounts below it (`rro`, …).
    pub(crate) recursive_attributes: MountAttributes,
    pub(crate) propagation: Option<Propagation>,
    /// The option `bind` (false) or `rbind` (true).
    pub(crate) bind: Option<bool>,
    /// The option `tmpcopyup`.
    pub(crate) copy_up: bool,
    /// The option `idmap` (false) or `ridmap` (true).
    pub(crate) idmap: Option<bool>,
    /// The option `remount`.
    pub(crate) remount: bool,
    /// Options of the file system: key and value.
    pub(crate) data: Vec<(String, Option<String>)>,
}

/// An option that sets or clears an attribute flag.
struct Attribute {
    name: &'static str,
    flag: MountAttrFlags,
    set: bool,
}

const fn attribute(option: &'static str, flag: MountAttrFlags, set: bool) -> Attribute {
    Attribute { name: option, flag, set }
}

/// Attribute options. Each also has a recursive form with the prefix `r`.
const ATTRIBUTES: [Attribute; 16] = [
    attribute("ro", MountAttrFlags::MOUNT_ATTR_RDONLY, true),
    attribute("rw", MountAttrFlags::MOUNT_ATTR_RDONLY, false),
    attribute("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID, true),
    attribute("suid", MountAttrFlags::MOUNT_ATTR_NOSUID, false),
    attribute("nodev", MountAttrFlags::MOUNT_ATTR_NODEV, true),
    attribute("dev", MountAttrFlags::MOUNT_ATTR_NODEV, false),
    attribute("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC, true),
    attribute("exec", MountAttrFlags::MOUNT_ATTR_NOEXEC, false),
    attribute("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME, true),
    attribute("diratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME, false),
    attribute("nosymfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, true),
    attribute("symfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, false),
    attribute("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME, true),
    attribute("atime", MountAttrFlags::MOUNT_ATTR_NOATIME, false),
    attribute("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME, true),
    attribute("nostrictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME, false),
];

/// Options without effect here: defaults, or options that util-linux handles itself.
const NO_EFFECT: [&str; 17] = [
    "defaults",
    "async",
    "nomand",
    "norelatime",
    "rnorelatime",
    "silent",
    "loud",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "nolazytime",
    "nodirsync",
    // Each file system decides itself whether it counts changes of inodes.
    "iversion",
    "noiversion",
    "user",
    "nouser",
];

/// Options of the *file system* (not the mount); flags of fsconfig(2).
const SUPERBLOCK_FLAGS: [&str; 4] = ["sync", "dirsync", "lazytime", "mand"];

impl Options {
    /// Parses the options of one mount. `known` are the keys that its file system accepts; `None`: any key.
    pub(crate) fn parse(destination: &str, strings: &[String], known: Option<&[&str]>) -> Result<Self, Error> {
        let mut options = Self::default();
        for option in strings {
            if option.contains('\0') {
                return Err(Error::invalid(format!("mount {destination}: option {option:?} has a NUL byte")));
            }
            // A bind mount cannot change its file system.
            let ignored = SUPERBLOCK_FLAGS.contains(&option.as_str()) && known.is_some_and(<[_]>::is_empty);
            if !ignored && !options.parse_mount_option(option) {
                options.add_data(destination, option, known)?;
            }
        }
        if options.bind.is_some() && !options.data.is_empty() {
            let option = &options.data[0].0;
            return Err(Error::invalid(format!("mount {destination}: {option:?} is not an option of a bind mount")));
        }
        Ok(options)
    }

    /// Merges the recursive attributes into the mount's own, for a new file system, which has no mounts below it.
    pub(crate) fn merge_recursive(&mut self) {
        let recursive = std::mem::take(&mut self.recursive_attributes);
        self.attributes.set = (self.attributes.set - recursive.clear) | recursive.set;
        self.attributes.clear = (self.attributes.clear - recursive.set) | recursive.clear;
    }

    /// Whether the options for the file system include this key.
    pub(crate) fn has_data(&self, key: &str) -> bool {
        self.data.iter().any(|(known, _)| known == key)
    }

    /// Applies an option that is not one of the file system; `false`: it is not such an option.
    fn parse_mount_option(&mut self, option: &str) -> bool {
        if NO_EFFECT.contains(&option) {
            return true;
        }
        match option {
            "bind" => self.bind = Some(self.bind.unwrap_or(false)),
            "rbind" => self.bind = Some(true),
            "tmpcopyup" => self.copy_up = true,
            "idmap" => self.idmap = Some(self.idmap.unwrap_or(false)),
            "ridmap" => self.idmap = Some(true),
            "remount" => self.remount = true,
            "relatime" => set_access_times(&mut self.attributes, MountAttrFlags::MOUNT_ATTR_RELATIME),
            "rrelatime" => set_access_times(&mut self.recursive_attributes, MountAttrFlags::MOUNT_ATTR_RELATIME),
            _ => {
                if let Some(propagation) = propagation(option) {
                    self.propagation = Some(propagation);
                } else if let Some(attribute) = ATTRIBUTES.iter().find(|a| a.name == option) {
                    attribute.add(&mut self.attributes);
                } else if let Some(attribute) = ATTRIBUTES.iter().find(|a| option.strip_prefix('r') == Some(a.name)) {
                    attribute.add(&mut self.recursive_attributes);
                } else {
                    return false;
                }
            }
        }
        true
    }

    fn add_data(&mut self, destination: &str, option: &str, known: Option<&[&str]>) -> Result<(), Error> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        let flag = value.is_none() && SUPERBLOCK_FLAGS.contains(&key);
        if !flag && known.is_some_and(|known| !known.contains(&key)) {
            return Err(Error::invalid(format!("mount {destination}: unknown mount option {option:?}")));
        }
        self.data.push((key.to_owned(), value.map(str::to_owned)));
        Ok(())
    }
}

impl Attribute {
    fn add(&self, attributes: &mut MountAttributes) {
        let times = MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        if times.contains(self.flag) {
            // Clearing one of these modes selects the default mode; they are not independent flags.
            let kind = if self.set { self.flag } else { MountAttrFlags::MOUNT_ATTR_RELATIME };
            set_access_times(attributes, kind);
        } else if self.set {
            attributes.set |= self.flag;
            attributes.clear -= self.flag;
        } else {
            attributes.set -= self.flag;
            attributes.clear |= self.flag;
        }
    }
}

fn set_access_times(attributes: &mut MountAttributes, kind: MountAttrFlags) {
    attributes.clear |= MountAttrFlags::MOUNT_ATTR__ATIME;
    attributes.set = (attributes.set - MountAttrFlags::MOUNT_ATTR__ATIME) | kind;
}

/// Parses a propagation option (`rslave`, `private`, …).
pub(crate) fn propagation(option: &str) -> Option<Propagation> {
    let (recursive, plain) = match option.strip_prefix('r') {
        Some(plain) => (true, plain),
        None => (false, option),
    };
    let flags = match plain {
        "shared" => MountPropagationFlags::SHARED,
        "slave" => MountPropagationFlags::DOWNSTREAM,
        "private" => MountPropagationFlags::PRIVATE,
        "unbindable" => MountPropagationFlags::UNBINDABLE,
        _ => return None,
    };
    Some(Propagation { flags, recursive })
}

/// Returns every option that is accepted regardless of the file system, sorted; for `features`.
pub(crate) fn known() -> Vec<String> {
    const PROPAGATIONS: [&str; 4] = ["private", "shared", "slave", "unbindable"];
    let recursive = |option: &str| format!("r{option}");
    let attributes = ATTRIBUTES.iter().map(|attribute| attribute.name).chain(["relatime"]);
    let others = ["bind", "rbind", "tmpcopyup", "idmap", "ridmap", "remount"];
    let mut strings: Vec<String> = others.map(str::to_owned).into();
    strings.extend(NO_EFFECT.into_iter().chain(SUPERBLOCK_FLAGS).map(str::to_owned));
    for option in attributes.chain(PROPAGATIONS) {
        strings.extend([option.to_owned(), recursive(option)]);
    }
    strings.sort();
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(strings: &[&str], known: Option<&[&str]>) -> Result<Options, Error> {
        let strings: Vec<String> = strings.iter().map(|w| (*w).to_owned()).collect();
        Options::parse("/x", &strings, known)
    }

    #[test]
    fn later_options_win() {
        let options = parse(&["ro", "nosuid", "rw", "noexec"], None).unwrap();
        assert_eq!(options.attributes.set, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC);
        assert_eq!(options.attributes.clear, MountAttrFlags::MOUNT_ATTR_RDONLY);
        let options = parse(&["noatime", "strictatime"], None).unwrap();
        assert_eq!(options.attributes.set, MountAttrFlags::MOUNT_ATTR_STRICTATIME);
        assert_eq!(options.attributes.clear, MountAttrFlags::MOUNT_ATTR__ATIME);
        assert_eq!(parse(&["noatime", "relatime"], None).unwrap().attributes.set, MountAttrFlags::empty());
    }

    #[test]
    fn the_prefix_r_makes_an_option_recursive() {
        let options = parse(&["rbind", "rro", "rnosuid", "rslave"], Some(&[])).unwrap();
        assert_eq!(options.bind, Some(true));
        assert!(options.attributes.is_empty());
        assert_eq!(
            options.recursive_attributes.set,
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID
        );
        assert_eq!(options.propagation, propagation("rslave"));
        assert!(options.propagation.unwrap().recursive);
        assert!(!propagation("shared").unwrap().recursive);
    }

    #[test]
    fn unknown_options_are_named() {
        let error = parse(&["ro", "sizee=1"], Some(&["size"])).unwrap_err();
        assert_eq!(error.message(), "mount /x: unknown mount option \"sizee=1\"");
        let error = parse(&["bind", "size=1"], None).unwrap_err();
        assert_eq!(error.message(), "mount /x: \"size\" is not an option of a bind mount");
        let data = parse(&["size=1k", "mode=755", "tmpcopyup", "sync"], Some(&["size", "mode"])).unwrap();
        assert!(data.copy_up);
        assert_eq!(data.data.len(), 3);
    }
}
