//! AppArmor: chooses the profile of a container on nodes with AppArmor.

mod profile;

use std::{fs, sync::LazyLock};

use crate::{Error, Feature, Security};

/// The profile for `RuntimeDefault` (`dist/apparmor`).
const DEFAULT: &str = "pinion-default";
const FIELD: &str = "config.linux.security_context.apparmor";
/// File that lists the profiles loaded in the kernel, one per line.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

/// Whether AppArmor is enabled in this boot.
static ENABLED: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|value| value.starts_with('Y'))
});

/// AppArmor on a node; tests supply their own.
struct Node<'a> {
    enabled: bool,
    /// Lists the loaded profiles, one per line; `None` if the list cannot be read: then the kernel reports an unknown
    /// profile.
    profiles: &'a dyn Fn() -> Option<String>,
    /// Loads the default profile, or returns the reason why that is not possible.
    load: &'a dyn Fn() -> Result<(), String>,
}

/// Returns the profile of a container; `None` for no confinement. May run `apparmor_parser`: blocks.
pub(super) fn apparmor(security: &Security) -> Result<Option<String>, Error> {
    if security.privileged {
        return Ok(None);
    }
    this_node().choose(security.apparmor.as_deref())
}

/// Loads the default profile if AppArmor is enabled and the profile is not loaded yet. Blocks.
pub(crate) fn prepare() {
    if *ENABLED && let Err(error) = this_node().choose(None) {
        tracing::warn!("containers without an explicit AppArmor profile cannot be created: {error}");
    }
}

/// Reports whether containers are confined by default, and the reason if AppArmor is enabled and they are not.
pub(crate) fn describe() -> Feature {
    let reason = profile::failure().filter(|_| *ENABLED);
    Feature { supported: *ENABLED && reason.is_none(), reason }
}

fn this_node() -> Node<'static> {
    Node { enabled: *ENABLED, profiles: &|| fs::read_to_string(LOADED).ok(), load: &profile::load }
}

impl Node<'_> {
    fn choose(&self, requested: Option<&str>) -> Result<Option<String>, Error> {
        match (requested, self.enabled) {
            (None | Some("unconfined"), false) => Ok(None),
            (None, true) => self.default_profile().map(Some),
            (Some(name), false) => {
                Err(Error::invalid(format!("{FIELD}: profile {name:?}, but AppArmor is not enabled on this node")))
            }
            (Some(name), true) if name != "unconfined" && self.has(name) == Some(false) => Err(Error::invalid(
                format!("{FIELD}: profile {name:?} is not loaded on this node; load it with apparmor_parser"),
            )),
            (Some(name), true) => Ok(Some(name.to_owned())),
        }
    }

    fn default_profile(&self) -> Result<String, Error> {
        if self.has(DEFAULT) != Some(true) {
            (self.load)().map_err(|reason| {
                Error::state(format!(
                    "{FIELD}: RuntimeDefault is the profile {DEFAULT:?}, which is not loaded and cannot be loaded: \
                     {reason}; install apparmor_parser (package apparmor), or request Unconfined"
                ))
            })?;
        }
        Ok(DEFAULT.to_owned())
    }

    /// Returns whether a profile is loaded; `None` if that cannot be determined.
    fn has(&self, name: &str) -> Option<bool> {
        let profiles = (self.profiles)()?;
        Some(profiles.lines().any(|line| line.rsplit_once(" (").is_some_and(|(loaded, _)| loaded == name)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LOADED_PROFILES: &str = "pinion-default (enforce)\n/usr/bin/man (enforce)\nmine (complain)\n";

    fn choose(requested: Option<&str>, enabled: bool, profiles: Option<&str>) -> Result<Option<String>, Error> {
        let profiles = || profiles.map(str::to_owned);
        Node { enabled, profiles: &profiles, load: &|| Err("no parser".to_owned()) }.choose(requested)
    }

    #[test]
    fn only_loaded_profiles_are_accepted() {
        let chosen = |requested, enabled, profiles| choose(requested, enabled, profiles).expect("accepted");
        assert_eq!(chosen(None, false, Some(LOADED_PROFILES)), None);
        assert_eq!(chosen(None, true, Some(LOADED_PROFILES)), Some("pinion-default".into()));
        assert_eq!(chosen(Some("unconfined"), false, Some("")), None);
        assert_eq!(chosen(Some("unconfined"), true, Some("")), Some("unconfined".into()));
        assert_eq!(chosen(Some("mine"), true, Some(LOADED_PROFILES)), Some("mine".into()));
        assert_eq!(chosen(Some("mine"), true, None), Some("mine".into()));
        for (enabled, expected) in [(false, "not enabled"), (true, "not loaded")] {
            let error = choose(Some("min"), enabled, Some(LOADED_PROFILES)).expect_err("refused");
            assert!(error.message.starts_with(FIELD) && error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_default_profile_is_loaded_or_the_container_refused() {
        let loads = Cell::new(0);
        let load = || {
            loads.set(loads.get() + 1);
            Ok(())
        };
        for (profiles, expected) in [(Some(LOADED_PROFILES), 0), (Some("mine (enforce)\n"), 1), (None, 1)] {
            loads.set(0);
            let node = Node { enabled: true, profiles: &|| profiles.map(str::to_owned), load: &load };
            assert_eq!(node.choose(None).expect("loaded"), Some("pinion-default".into()));
            assert_eq!(loads.get(), expected, "{profiles:?}");
        }
        for profiles in [Some("mine (enforce)\n"), None] {
            let error = choose(None, true, profiles).expect_err("never unconfined");
            assert!(error.message.contains("cannot be loaded: no parser; install apparmor_parser"), "{error}");
        }
    }
}
