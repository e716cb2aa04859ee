//! `process.capabilities`.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
    },
};

use oci::CAPABILITIES;

use crate::{Error, error::During};

/// The five sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    bounding: CapabilitySet,
    effective: CapabilitySet,
    inheritable: CapabilitySet,
    permitted: CapabilitySet,
    ambient: CapabilitySet,
}

/// What this process has, and so the most it can give.
pub(crate) fn own() -> Result<CapabilitySet, Error> {
    Ok(capabilities(None).during(|| "ask for the own capabilities")?.permitted)
}

/// Every one there is.
pub(crate) fn all() -> CapabilitySet {
    CapabilitySet::from_bits_retain((1 << CAPABILITIES.len()) - 1)
}

impl Capabilities {
    /// Parses the names, and takes out what this process cannot give. Without the object in the spec: none at all.
    pub(crate) fn parse(
        spec: Option<&oci::Capabilities>,
        own: CapabilitySet,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let none = oci::Capabilities::default();
        let spec = spec.unwrap_or(&none);
        let mut lacking = CapabilitySet::empty();
        let mut set = |field: &str, names: &[String]| -> CapabilitySet {
            let wanted = parse_set(field, names, warnings);
            lacking |= wanted - own;
            wanted & own
        };
        let sets = Self {
            bounding: set("bounding", &spec.bounding),
            effective: set("effective", &spec.effective),
            inheritable: set("inheritable", &spec.inheritable),
            permitted: set("permitted", &spec.permitted),
            ambient: set("ambient", &spec.ambient),
        };
        if !lacking.is_empty() {
            let names = names_of(lacking).join(", ");
            warnings.push(format!("process.capabilities: left out what this host does not grant: {names}"));
        }
        sets.check()
    }

    /// Takes what the kernel would refuse: effective beyond permitted is an error, ambient beyond permitted and
    /// inheritable is only dropped, as runc does.
    fn check(mut self) -> Result<Self, Error> {
        let beyond = self.effective - self.permitted;
        if !beyond.is_empty() {
            let names = names_of(beyond).join(", ");
            return Err(Error::invalid(format!("process.capabilities.effective: {names} not in the permitted set")));
        }
        self.ambient &= self.permitted & self.inheritable;
        Ok(self)
    }

    /// First half, as root: shrinks the bounding set; the rest is kept over the change of user.
    pub(crate) fn limit(&self) -> Result<(), Error> {
        let drop = all() - self.bounding;
        for (number, name) in CAPABILITIES.iter().enumerate() {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if !drop.contains(one) {
                continue;
            }
            match remove_capability_from_bounding_set(one) {
                // An older kernel that does not know it.
                Err(Errno::INVAL) => {}
                result => result.during(|| format!("drop {name} from the bounding set"))?,
            }
        }
        set_keep_capabilities(true).during(|| "keep capabilities over the change of user")
    }

    /// Between the halves, as the user: no more than the process will have, and `CAP_SYS_ADMIN` where a later step
    /// needs it.
    pub(crate) fn raise(&self, own: CapabilitySet, late_admin: bool) -> Result<(), Error> {
        let extra = if late_admin { own & CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
        let sets = CapabilitySets {
            effective: self.effective | extra,
            permitted: self.permitted | extra,
            inheritable: self.inheritable,
        };
        set_capabilities(None, sets).during(|| format!("set the capabilities {}", names_of(self.permitted).join(", ")))
    }

    /// Second half: what the process will have.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        let sets =
            CapabilitySets { effective: self.effective, permitted: self.permitted, inheritable: self.inheritable };
        set_capabilities(None, sets)
            .during(|| format!("set the capabilities {}", names_of(self.permitted).join(", ")))?;
        clear_ambient_capability_set().during(|| "clear the ambient capabilities")?;
        for one in self.ambient.iter() {
            configure_capability_in_ambient_set(one, true)
                .during(|| format!("raise ambient {}", names_of(one).join(", ")))?;
        }
        Ok(())
    }
}

/// What no kernel that this was built for knows can be granted by none: the specification asks for a warning then.
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
    fn what_the_host_lacks_is_left_out_with_a_warning() {
        let mut warnings = Vec::new();
        let own = CapabilitySet::CHOWN;
        let parsed = Capabilities::parse(Some(&sets(&["CAP_CHOWN", "CAP_SYS_RESOURCE"])), own, &mut warnings).unwrap();
        assert_eq!(parsed.effective, CapabilitySet::CHOWN);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("CAP_SYS_RESOURCE"), "{warnings:?}");
    }

    #[test]
    fn effective_must_be_permitted() {
        let mut wanted = sets(&["CAP_CHOWN"]);
        wanted.permitted.clear();
        assert!(Capabilities::parse(Some(&wanted), CapabilitySet::all(), &mut Vec::new()).is_err());
    }
}
