//! Sysctls of network namespaces. A file under `/proc/sys/net` refers to the namespace of the thread that opens it.

use std::{io, path::PathBuf};

use rtnl::subnet::Subnet;

use crate::Error;

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(key)
}

/// Writes a value, in the namespace of the calling thread.
pub(crate) fn write(key: &str, value: &str) -> Result<(), Error> {
    netns::write_sysctl(&format!("net/{key}"), value).map_err(|e| Error::path("write", &path(key), e))
}

/// Returns a value, in the namespace of the calling thread.
pub(crate) fn read(key: &str) -> Result<String, Error> {
    netns::read_sysctl(&format!("net/{key}")).map_err(|e| Error::path("read", &path(key), e))
}

/// Like [`write`], for a sysctl that kernels without IPv6, or older ones, lack.
pub(crate) fn write_if_present(key: &str, value: &str) -> Result<(), Error> {
    match write(key, value) {
        Err(Error::Kernel { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// Like [`ensure`], for a sysctl that kernels without IPv6 lack.
pub(crate) fn ensure_if_present(key: &str, value: &str) -> Result<(), Error> {
    match ensure(key, value) {
        Err(Error::Kernel { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        ensured => ensured,
    }
}

/// Writes a value unless the sysctl has it. Reading is free of side effects, writing may not be.
pub(crate) fn ensure(key: &str, value: &str) -> Result<(), Error> {
    if read(key).is_ok_and(|current| current.trim() == value) {
        return Ok(());
    }
    write(key, value)
}

/// Enables forwarding on the node for the families of the addresses.
pub(crate) fn forward(addresses: &[Subnet]) -> Result<(), Error> {
    for (key, ipv4) in [("ipv4/ip_forward", true), ("ipv6/conf/all/forwarding", false)] {
        if addresses.iter().any(|address| address.address.is_ipv4() == ipv4) {
            ensure(key, "1")?;
        }
    }
    Ok(())
}
