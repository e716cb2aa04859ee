//! Capabilities: a default set, more, less, or all.

use oci::{CAPABILITIES, Capabilities, DEFAULT_CAPABILITIES};

use crate::{Error, Security};

/// `ALL` comes before single names, whichever list has it.
pub(super) fn granted(security: &Security) -> Result<Vec<String>, Error> {
    if security.privileged {
        return Ok(CAPABILITIES.map(str::to_owned).to_vec());
    }
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    let mut granted: Vec<&str> = match (add_all, drop_all) {
        (true, _) => CAPABILITIES.to_vec(),
        (false, true) => Vec::new(),
        (false, false) => DEFAULT_CAPABILITIES.to_vec(),
    };
    granted.retain(|name| !drop.contains(name));
    for name in add {
        if !granted.contains(&name) {
            granted.push(name);
        }
    }
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

/// The sets of a process. Nothing is inheritable (CVE-2022-24769).
pub(super) fn sets(granted: &[String], ambient: &[String]) -> Capabilities {
    let ambient: Vec<String> = match parse(ambient) {
        Ok((_, names)) => names.into_iter().map(str::to_owned).filter(|name| granted.contains(name)).collect(),
        Err(_) => Vec::new(),
    };
    Capabilities {
        bounding: granted.to_vec(),
        effective: granted.to_vec(),
        permitted: granted.to_vec(),
        // The kernel wants an ambient capability to be inheritable, too.
        inheritable: ambient.clone(),
        ambient,
    }
}
