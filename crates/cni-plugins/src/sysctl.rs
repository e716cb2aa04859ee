//! Sysctls of network namespaces. A file under `/proc/sys/net` refers to the namespace of the thread that opens it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};

use rtnl::subnet::Subnet;

use crate::Error;

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(key)
}

/// Writes a value, in the namespace of the calling thread.
pub(crate) fn write(key: &str, value: &str) -> Result<(), Error> {
    let path = path(key);
    // Without O_CREAT, so that a sysctl that the kernel lacks is `ENOENT`.
    let file = OpenOptions::new().write(true).open(&path);
    file.and_then(|mut file| file.write_all(value.as_bytes())).map_err(|e| Error::path("write", &path, e))
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
    if fs::read_to_string(path(key)).is_ok_and(|current| current.trim() == value) {
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
