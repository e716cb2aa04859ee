//! Capabilities: a default set, more, less, or all.

use oci::{CAPABILITIES, Capabilities, DEFAULT_CAPABILITIES};

use crate::{Error, Security};

/// `ALL` comes before single names, whichever list has it; of two lists that name the same, the one that drops it
/// counts. An ambient capability is added to all sets (the CRI's `Capability`).
pub(super) fn granted(security: &Security) -> Result<Vec<String>, Error> {
    if security.privileged {
        return Ok(CAPABILITIES.map(str::to_owned).to_vec());
    }
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (ambient_all, ambient) = parse(&security.add_ambient_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    let mut granted: Vec<&str> = match (drop_all, add_all || ambient_all) {
        (true, _) => Vec::new(),
        (false, true) => CAPABILITIES.to_vec(),
        (false, false) => DEFAULT_CAPABILITIES.to_vec(),
    };
    for name in add.into_iter().chain(ambient) {
        if !granted.contains(&name) {
            granted.push(name);
        }
    }
    granted.retain(|name| !drop.contains(name));
    Ok(granted.into_iter().map(str::to_owned).collect())
}

/// Whether `ALL` is among them, and the others.
fn parse(names: &[String]) -> Result<(bool, Vec<&'static str>), Error> {
    let mut all = false;
    let mut known = Vec::new();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" {
            all = true;
            continue;
        }
        match CAPABILITIES.iter().find(|known| known.strip_prefix("CAP_") == Some(bare)) {
            Some(found) => known.push(*found),
            None => return Err(Error::invalid(format!("capability {name:?} is not known; see capabilities(7)"))),
        }
    }
    Ok((all, known))
}

/// The sets of a process. Nothing is inheritable but what is ambient (CVE-2022-24769).
pub(super) fn sets(granted: &[String], ambient: &[String]) -> Result<Capabilities, Error> {
    let (all, names) = parse(ambient)?;
    let ambient: Vec<String> = granted.iter().filter(|name| all || names.contains(&name.as_str())).cloned().collect();
    Ok(Capabilities {
        bounding: granted.to_vec(),
        effective: granted.to_vec(),
        permitted: granted.to_vec(),
        // The kernel wants an ambient capability to be inheritable, too.
        inheritable: ambient.clone(),
        ambient,
    })
}
