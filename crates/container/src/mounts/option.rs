//! Mount options: the words of the specification's table, fstab(5) and mount(8), as what the mount API takes.

use std::io;

use rustix::{
    fd::AsFd,
    mount::{MountAttrFlags, MountPropagationFlags},
};
use syscall::mount_attributes::MountAttributes;

use crate::Error;

/// How mounts pass on to and from other namespaces.
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

/// What a mount's options say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// For the mount itself.
    pub(crate) own: MountAttributes,
    /// For all mounts below too (`rro`, …).
    pub(crate) recursive: MountAttributes,
    pub(crate) propagation: Option<Propagation>,
    /// `bind` (false) or `rbind` (true).
    pub(crate) bind: Option<bool>,
    /// `tmpcopyup`
    pub(crate) copy_up: bool,
    /// `idmap` (false) or `ridmap` (true)
    pub(crate) idmap: Option<bool>,
    /// `remount`
    pub(crate) remount: bool,
    /// For the file system: key, value.
    pub(crate) data: Vec<(String, Option<String>)>,
}

/// One attribute: the flag and whether the word sets it.
struct Attribute {
    word: &'static str,
    flag: MountAttrFlags,
    set: bool,
}

const fn attribute(word: &'static str, flag: MountAttrFlags, set: bool) -> Attribute {
    Attribute { word, flag, set }
}

/// Words that have a recursive twin with an `r` in front.
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

/// Words without an effect here: defaults, or what util-linux keeps for itself.
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
    // Each file system decides by itself whether it counts changes of inodes.
    "iversion",
    "noiversion",
    "user",
    "nouser",
];

/// Words that make the *file system* (not the mount) behave; flags of fsconfig(2).
const SUPERBLOCK_FLAGS: [&str; 4] = ["sync", "dirsync", "lazytime", "mand"];

impl Options {
    /// Reads the words of one mount. `known` are the keys its file system takes; `None`: any.
    pub(crate) fn parse(destination: &str, words: &[String], known: Option<&[&str]>) -> Result<Self, Error> {
        let mut options = Self::default();
        for word in words {
            if word.contains('\0') {
                return Err(Error::invalid(format!("mount {destination}: option {word:?} has a NUL byte")));
            }
            // A bind mount has the file system that it has.
            let ignored = SUPERBLOCK_FLAGS.contains(&word.as_str()) && known.is_some_and(<[_]>::is_empty);
            if !ignored && !options.take(word) {
                options.take_data(destination, word, known)?;
            }
        }
        if options.bind.is_some() && !options.data.is_empty() {
            let word = &options.data[0].0;
            return Err(Error::invalid(format!("mount {destination}: {word:?} is no option of a bind mount")));
        }
        Ok(options)
    }

    /// On a new file system nothing is mounted below: what is recursive is its own.
    pub(crate) fn nothing_below(&mut self) {
        let recursive = std::mem::take(&mut self.recursive);
        self.own.set = (self.own.set - recursive.clear) | recursive.set;
        self.own.clear = (self.own.clear - recursive.set) | recursive.clear;
    }

    /// Whether the file system is given this option.
    pub(crate) fn has_data(&self, key: &str) -> bool {
        self.data.iter().any(|(known, _)| known == key)
    }

    /// Takes a word that is no option of a file system.
    fn take(&mut self, word: &str) -> bool {
        if NO_EFFECT.contains(&word) {
            return true;
        }
        match word {
            "bind" => self.bind = Some(self.bind.unwrap_or(false)),
            "rbind" => self.bind = Some(true),
            "tmpcopyup" => self.copy_up = true,
            "idmap" => self.idmap = Some(self.idmap.unwrap_or(false)),
            "ridmap" => self.idmap = Some(true),
            "remount" => self.remount = true,
            "relatime" => set_access_times(&mut self.own, MountAttrFlags::MOUNT_ATTR_RELATIME),
            "rrelatime" => set_access_times(&mut self.recursive, MountAttrFlags::MOUNT_ATTR_RELATIME),
            _ => {
                if let Some(propagation) = propagation(word) {
                    self.propagation = Some(propagation);
                } else if let Some(found) = ATTRIBUTES.iter().find(|a| a.word == word) {
                    found.add(&mut self.own);
                } else if let Some(found) = ATTRIBUTES.iter().find(|a| word.strip_prefix('r') == Some(a.word)) {
                    found.add(&mut self.recursive);
                } else {
                    return false;
                }
            }
        }
        true
    }

    fn take_data(&mut self, destination: &str, word: &str, known: Option<&[&str]>) -> Result<(), Error> {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        let flag = value.is_none() && SUPERBLOCK_FLAGS.contains(&key);
        if !flag && known.is_some_and(|known| !known.contains(&key)) {
            return Err(Error::invalid(format!("mount {destination}: unknown mount option {word:?}")));
        }
        self.data.push((key.to_owned(), value.map(str::to_owned)));
        Ok(())
    }
}

impl Attribute {
    fn add(&self, attributes: &mut MountAttributes) {
        let times = MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        if times.contains(self.flag) {
            // Three kinds in two bits: leaving one goes back to the default.
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

/// `rslave`, `private`, …
pub(crate) fn propagation(word: &str) -> Option<Propagation> {
    let (recursive, plain) = match word.strip_prefix('r') {
        Some(plain) => (true, plain),
        None => (false, word),
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

/// Every word that is taken without a look at the file system, for `features`.
pub(crate) fn known() -> Vec<String> {
    const PROPAGATIONS: [&str; 4] = ["private", "shared", "slave", "unbindable"];
    let recursive = |word: &str| format!("r{word}");
    let attributes = ATTRIBUTES.iter().map(|attribute| attribute.word).chain(["relatime"]);
    let own = ["bind", "rbind", "tmpcopyup", "idmap", "ridmap", "remount"];
    let mut words: Vec<String> = own.map(str::to_owned).into();
    words.extend(NO_EFFECT.into_iter().chain(SUPERBLOCK_FLAGS).map(str::to_owned));
    for word in attributes.chain(PROPAGATIONS) {
        words.extend([word.to_owned(), recursive(word)]);
    }
    words.sort();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str], known: Option<&[&str]>) -> Result<Options, Error> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Options::parse("/x", &words, known)
    }

    #[test]
    fn later_words_win() {
        let options = parse(&["ro", "nosuid", "rw", "noexec"], None).unwrap();
        assert_eq!(options.own.set, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC);
        assert_eq!(options.own.clear, MountAttrFlags::MOUNT_ATTR_RDONLY);
        let options = parse(&["noatime", "strictatime"], None).unwrap();
        assert_eq!(options.own.set, MountAttrFlags::MOUNT_ATTR_STRICTATIME);
        assert_eq!(options.own.clear, MountAttrFlags::MOUNT_ATTR__ATIME);
        assert_eq!(parse(&["noatime", "relatime"], None).unwrap().own.set, MountAttrFlags::empty());
    }

    #[test]
    fn an_r_makes_it_recursive() {
        let options = parse(&["rbind", "rro", "rnosuid", "rslave"], Some(&[])).unwrap();
        assert_eq!(options.bind, Some(true));
        assert!(options.own.is_empty());
        assert_eq!(options.recursive.set, MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID);
        assert_eq!(options.propagation, propagation("rslave"));
        assert!(options.propagation.unwrap().recursive);
        assert!(!propagation("shared").unwrap().recursive);
    }

    #[test]
    fn unknown_words_are_named() {
        let error = parse(&["ro", "sizee=1"], Some(&["size"])).unwrap_err();
        assert_eq!(error.message, "mount /x: unknown mount option \"sizee=1\"");
        let error = parse(&["bind", "size=1"], None).unwrap_err();
        assert_eq!(error.message, "mount /x: \"size\" is no option of a bind mount");
        let data = parse(&["size=1k", "mode=755", "tmpcopyup", "sync"], Some(&["size", "mode"])).unwrap();
        assert!(data.copy_up);
        assert_eq!(data.data.len(), 3);
    }
}
