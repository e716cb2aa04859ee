//! Sysctls of the node that a bridge network needs.

use std::{fs, io, path::Path};

use crate::Error;
use rtnl::subnet::Subnet;

const FORWARD_V4: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD_V6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

fn write(path: &str, value: &str) -> Result<(), Error> {
    fs::write(path, value).map_err(|e| Error::path("write", Path::new(path), e))
}

/// Turns forwarding on for the families of the subnets. Notes in `notes` what was off before, so that removal can
/// restore it.
pub(crate) fn forwarding(subnets: &[Subnet], notes: &Path) -> Result<(), Error> {
    for (path, note, ipv4) in [(FORWARD_V4, "forwarding4", true), (FORWARD_V6, "forwarding6", false)] {
        if !subnets.iter().any(|s| s.address.is_ipv4() == ipv4)
            || fs::read_to_string(path).is_ok_and(|v| v.trim() == "1")
        {
            continue;
        }
        let note = notes.join(note);
        fs::write(&note, "0").map_err(|e| Error::path("write", &note, e))?;
        write(path, "1")?;
        tracing::info!(sysctl = path, "turned IP forwarding on, so that pods reach other machines through this node");
    }
    Ok(())
}

/// Turns forwarding off again if [`forwarding`] turned it on.
pub(crate) fn restore_forwarding(notes: &Path) -> Result<(), Error> {
    for (path, note) in [(FORWARD_V4, "forwarding4"), (FORWARD_V6, "forwarding6")] {
        let note = notes.join(note);
        if note.exists() {
            write(path, "0")?;
            fs::remove_file(&note).map_err(|e| Error::path("remove", &note, e))?;
        }
    }
    Ok(())
}

/// Sets a bridge's sysctls: IPv6 is disabled unless pods have IPv6 addresses, and `route_localnet` lets the node's
/// 127.0.0.1 reach pods through the bridge.
pub(super) fn bridge(name: &str, ipv6: bool) -> Result<(), Error> {
    let disable = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    match fs::write(&disable, if ipv6 { "0" } else { "1" }) {
        // A kernel without IPv6 has no such file.
        Err(e) if e.kind() == io::ErrorKind::NotFound && !ipv6 => {}
        done => done.map_err(|e| Error::path("write", Path::new(&disable), e))?,
    }
    if ipv6 {
        write(&format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0")?;
    }
    write(&format!("/proc/sys/net/ipv4/conf/{name}/route_localnet"), "1")
}
