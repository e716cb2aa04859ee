//! Capabilities of a container: the default set with additions and removals, or all.

use oci::{CAPABILITIES, Capabilities};

use crate::{Error, Security};

/// Returns the granted capabilities: `defaults` with additions and removals. `ALL` in either list is applied before single names; a name in both lists is
/// dropped. An ambient capability is added to all sets (the CRI's `Capability`).
pub(super) fn granted(security: &Security, defaults: &[String]) -> Result<Vec<String>, Error> {
    if security.privileged {
        return Ok(CAPABILITIES.map(str::to_owned).to_vec());
    }
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (ambient_all, ambient) = parse(&security.add_ambient_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    let mut granted: Vec<&str> = match (drop_all, add_all || ambient_all) {
        (true, _) => Vec::new(),
        (false, true) => CAPABILITIES.to_vec(),
        (false, false) => defaults.iter().map(String::as_str).collect(),
    };
    for name in add.into_iter().chain(ambient) {
        if !granted.contains(&name) {
            granted.push(name);
        }
    }
    granted.retain(|name| !drop.contains(name));
    Ok(granted.into_iter().map(str::to_owned).collect())
}

/// Returns whether `ALL` is among the names, and the other names in canonical form.
fn parse(names: &[String]) -> Result<(bool, Vec<&'static str>), Error> {
    let mut all = false;
    let mut known = Vec::new();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if short == "ALL" {
            all = true;
            continue;
        }
        match CAPABILITIES.iter().find(|known| known.strip_prefix("CAP_") == Some(short)) {
            Some(name) => known.push(*name),
            None => return Err(Error::invalid(format!("capability {name:?} is unknown; see capabilities(7)"))),
        }
    }
    Ok((all, known))
}

/// Returns the capability sets of a process. Only ambient capabilities are inheritable (CVE-2022-24769).
pub(super) fn sets(granted: &[String], ambient: &[String]) -> Result<Capabilities, Error> {
    let (all, names) = parse(ambient)?;
    let ambient: Vec<String> = granted.iter().filter(|name| all || names.contains(&name.as_str())).cloned().collect();
    Ok(Capabilities {
        bounding: granted.to_vec(),
        effective: granted.to_vec(),
        permitted: granted.to_vec(),
        // The kernel requires an ambient capability to be inheritable, too.
        inheritable: ambient.clone(),
        ambient,
    })
}
