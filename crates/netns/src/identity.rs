//! Identification of namespaces, independent of their names.

use std::{fmt, fs, io, str::FromStr, sync::OnceLock};

use rustix::fd::AsFd;

/// The number of a namespace, which the kernel never reuses until a reboot.
///
/// It is `NS_GET_ID` (Linux 6.18), which for network namespaces equals `SO_NETNS_COOKIE` (5.14), the fallback on older
/// kernels. Names, inode numbers, descriptors and times are reused, so they do not identify a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NsId(pub u64);

impl fmt::Display for NsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An [`NsId`] that is unique across reboots, suitable for storage. Its text form is `<boot id>/<number>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Boot id, from `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Number within that boot.
    pub id: NsId,
}

impl Identity {
    pub(crate) fn of_this_boot(id: NsId) -> io::Result<Self> {
        Ok(Self { boot: boot_id()?.to_owned(), id })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.boot, self.id)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("namespace identity {text:?} is not <boot id>/<number>");
        let (boot, id) = text.split_once('/').ok_or_else(invalid)?;
        let id = id.parse().map_err(|_| invalid())?;
        if boot.is_empty() { Err(invalid()) } else { Ok(Self { boot: boot.to_owned(), id: NsId(id) }) }
    }
}

fn boot_id() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(known) = BOOT.get() {
        return Ok(known);
    }
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BOOT.get_or_init(|| read.trim().to_owned()))
}

/// Returns the number by `NS_GET_ID`; `None` if the kernel does not have this ioctl.
pub(crate) fn by_ioctl(namespace: impl AsFd) -> io::Result<Option<NsId>> {
    match syscall::namespace::namespace_id(namespace) {
        Ok(id) => Ok(Some(NsId(id))),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_parsed_from_its_text_form() {
        let identity = Identity { boot: "0b0e-77".into(), id: NsId(4_026_531_999) };
        assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
        for bad in ["", "77", "/77", "a/b"] {
            assert!(bad.parse::<Identity>().is_err(), "{bad:?}");
        }
    }
}
