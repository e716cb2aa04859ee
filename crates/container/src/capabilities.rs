//! `process.capabilities`: the capability sets of the process.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
    },
};

use oci::CAPABILITIES;

use crate::{Error, error::During};

/// The five capability sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    bounding: CapabilitySet,
    effective: CapabilitySet,
    inheritable: CapabilitySet,
    permitted: CapabilitySet,
    ambient: CapabilitySet,
}

/// Returns the permitted capabilities of this process, which are the most it can grant.
pub(crate) fn callers() -> Result<CapabilitySet, Error> {
    Ok(capabilities(None).during(|| "read the capabilities of this process")?.permitted)
}

/// Returns the set of all known capabilities.
pub(crate) fn all() -> CapabilitySet {
    CapabilitySet::from_bits_retain((1 << CAPABILITIES.len()) - 1)
}

impl Capabilities {
    /// Parses the names, and removes capabilities that this process cannot grant, with a warning. Without the object in
    /// the spec, all sets are empty.
    pub(crate) fn parse(
        spec: Option<&oci::Capabilities>,
        grantable: CapabilitySet,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let empty = oci::Capabilities::default();
        let spec = spec.unwrap_or(&empty);
        let mut missing = CapabilitySet::empty();
        let mut set = |field: &str, names: &[String]| -> CapabilitySet {
            let requested = parse_set(field, names, warnings);
            missing |= requested - grantable;
            requested & grantable
        };
        let sets = Self {
            bounding: set("bounding", &spec.bounding),
            effective: set("effective", &spec.effective),
            inheritable: set("inheritable", &spec.inheritable),
            permitted: set("permitted", &spec.permitted),
            ambient: set("ambient", &spec.ambient),
        };
        if !missing.is_empty() {
            let names = names_of(missing).join(", ");
            warnings.push(format!("process.capabilities: left out what this host does not grant: {names}"));
        }
        sets.check()
    }

    /// Checks the sets against each other: an effective capability that is not permitted is an error; an ambient one
    /// that is not permitted and inheritable is dropped, as in runc.
    fn check(mut self) -> Result<Self, Error> {
        let excess = self.effective - self.permitted;
        if !excess.is_empty() {
            let names = names_of(excess).join(", ");
            return Err(Error::invalid(format!("process.capabilities.effective: {names} not in the permitted set")));
        }
        self.ambient &= self.permitted & self.inheritable;
        Ok(self)
    }

    /// First part, as root: drops capabilities from the bounding set, and keeps the others over the change of user.
    pub(crate) fn limit(&self) -> Result<(), Error> {
        let drop = all() - self.bounding;
        for (number, name) in CAPABILITIES.iter().enumerate() {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if !drop.contains(capability) {
                continue;
            }
            match remove_capability_from_bounding_set(capability) {
                // An older kernel does not know it.
                Err(Errno::INVAL) => {}
                result => result.during(|| format!("drop {name} from the bounding set"))?,
            }
        }
        set_keep_capabilities(true).during(|| "keep capabilities over the change of user")
    }

    /// Between the two parts, as the user: sets the process's final capabilities, and `CAP_SYS_ADMIN` if a later step
    /// needs it.
    pub(crate) fn raise(&self, available: CapabilitySet, late_admin: bool) -> Result<(), Error> {
        let extra = if late_admin { available & CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
        let sets = CapabilitySets {
            effective: self.effective | extra,
            permitted: self.permitted | extra,
            inheritable: self.inheritable,
        };
        set_capabilities(None, sets).during(|| format!("set the capabilities {}", names_of(self.permitted).join(", ")))
    }

    /// Second part: sets the process's final capabilities.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        let sets =
            CapabilitySets { effective: self.effective, permitted: self.permitted, inheritable: self.inheritable };
        set_capabilities(None, sets)
            .during(|| format!("set the capabilities {}", names_of(self.permitted).join(", ")))?;
        clear_ambient_capability_set().during(|| "clear the ambient capabilities")?;
        for capability in self.ambient.iter() {
            configure_capability_in_ambient_set(capability, true)
                .during(|| format!("raise ambient {}", names_of(capability).join(", ")))?;
        }
        Ok(())
    }
}

/// Parses the names of one set. Unknown capabilities are left out with a warning, as the specification requires.
fn parse_set(field: &str, names: &[String], warnings: &mut Vec<String>) -> CapabilitySet {
    names.iter().fold(CapabilitySet::empty(), |set, name| {
        let upper = name.to_ascii_uppercase();
        let number =
            CAPABILITIES.iter().position(|known| *known == upper || known.strip_prefix("CAP_") == Some(&upper));
        match number {
            Some(number) => set | CapabilitySet::from_bits_retain(1 << number),
            None => {
                warnings.push(format!("process.capabilities.{field}: left out the unknown capability {name:?}"));
                set
            }
        }
    })
}

fn names_of(set: CapabilitySet) -> Vec<&'static str> {
    let bits = set.bits();
    CAPABILITIES.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(names: &[&str]) -> oci::Capabilities {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        oci::Capabilities {
            bounding: names.clone(),
            effective: names.clone(),
            permitted: names,
            ..oci::Capabilities::default()
        }
    }

    #[test]
    fn unknown_names_are_left_out_with_a_warning() {
        let mut warnings = Vec::new();
        let parsed = Capabilities::parse(Some(&sets(&["CAP_FLY"])), CapabilitySet::all(), &mut warnings).unwrap();
        assert_eq!(parsed.effective, CapabilitySet::empty());
        assert_eq!(warnings[0], "process.capabilities.bounding: left out the unknown capability \"CAP_FLY\"");
    }

    #[test]
    fn capabilities_that_the_host_lacks_are_left_out_with_a_warning() {
        let mut warnings = Vec::new();
        let grantable = CapabilitySet::CHOWN;
        let parsed =
            Capabilities::parse(Some(&sets(&["CAP_CHOWN", "CAP_SYS_RESOURCE"])), grantable, &mut warnings).unwrap();
        assert_eq!(parsed.effective, CapabilitySet::CHOWN);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("CAP_SYS_RESOURCE"), "{warnings:?}");
    }

    #[test]
    fn effective_must_be_permitted() {
        let mut requested = sets(&["CAP_CHOWN"]);
        requested.permitted.clear();
        assert!(Capabilities::parse(Some(&requested), CapabilitySet::all(), &mut Vec::new()).is_err());
    }
}
