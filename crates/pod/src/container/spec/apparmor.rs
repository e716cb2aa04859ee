//! AppArmor: what confines the process where the node has it.

mod profile;

use std::{fs, sync::LazyLock};

use crate::{Error, Security};

/// What `RuntimeDefault` means (`dist/apparmor`).
const DEFAULT: &str = "pinion-default";
const AT: &str = "config.linux.security_context.apparmor";
/// The profiles that the kernel has, a line each.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

/// Whether the kernel of this boot has it on.
static ENABLED: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|value| value.starts_with('Y'))
});

/// What AppArmor is on a node.
struct Node<'a> {
    enabled: bool,
    /// What is loaded, a line each; absent where it cannot be read: then the kernel says whether it knows a profile.
    table: &'a dyn Fn() -> Option<String>,
    /// Loads the default profile, or says why it cannot.
    load: &'a dyn Fn() -> Result<(), String>,
}

/// The profile to take on; `None`: none at all. May run `apparmor_parser`: blocks.
pub(super) fn apparmor(security: &Security) -> Result<Option<String>, Error> {
    if security.privileged {
        return Ok(None);
    }
    here().choose(security.apparmor.as_deref())
}

/// Loads the default profile where AppArmor is enabled and does not have it. Blocks.
pub(crate) fn prepare() {
    if *ENABLED && let Err(error) = here().choose(None) {
        tracing::warn!("containers that do not name an AppArmor profile cannot be made: {error}");
    }
}

/// For people: whether containers are confined by default, or why they are not.
pub(crate) fn describe() -> serde_json::Value {
    match (*ENABLED, profile::failure()) {
        (true, Some(why)) => why.into(),
        (enabled, _) => enabled.into(),
    }
}

fn here() -> Node<'static> {
    Node { enabled: *ENABLED, table: &|| fs::read_to_string(LOADED).ok(), load: &profile::load }
}

impl Node<'_> {
    fn choose(&self, asked: Option<&str>) -> Result<Option<String>, Error> {
        match (asked, self.enabled) {
            (None | Some("unconfined"), false) => Ok(None),
            (None, true) => self.default_profile().map(Some),
            (Some(name), false) => {
                Err(Error::invalid(format!("{AT}: profile {name:?}, but AppArmor is not enabled on this node")))
            }
            (Some(name), true) if name != "unconfined" && self.has(name) == Some(false) => Err(Error::invalid(
                format!("{AT}: profile {name:?} is not loaded on this node; load it with apparmor_parser"),
            )),
            (Some(name), true) => Ok(Some(name.to_owned())),
        }
    }

    fn default_profile(&self) -> Result<String, Error> {
        if self.has(DEFAULT) != Some(true) {
            (self.load)().map_err(|why| {
                Error::state(format!(
                    "{AT}: RuntimeDefault is the profile {DEFAULT:?}, which is not loaded and cannot be loaded: {why}; \
                     install apparmor_parser (package apparmor), or request Unconfined"
                ))
            })?;
        }
        Ok(DEFAULT.to_owned())
    }

    /// `None`: it cannot be known.
    fn has(&self, name: &str) -> Option<bool> {
        let table = (self.table)()?;
        Some(table.lines().any(|line| line.rsplit_once(" (").is_some_and(|(known, _)| known == name)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const KNOWN: &str = "pinion-default (enforce)\n/usr/bin/man (enforce)\nmine (complain)\n";

    fn choose(asked: Option<&str>, enabled: bool, table: Option<&str>) -> Result<Option<String>, Error> {
        let table = || table.map(str::to_owned);
        Node { enabled, table: &table, load: &|| Err("no parser".to_owned()) }.choose(asked)
    }

    #[test]
    fn profiles_are_taken_where_they_are_loaded() {
        let taken = |asked, enabled, table| choose(asked, enabled, table).expect("taken");
        assert_eq!(taken(None, false, Some(KNOWN)), None);
        assert_eq!(taken(None, true, Some(KNOWN)), Some("pinion-default".into()));
        assert_eq!(taken(Some("unconfined"), false, Some("")), None);
        assert_eq!(taken(Some("unconfined"), true, Some("")), Some("unconfined".into()));
        assert_eq!(taken(Some("mine"), true, Some(KNOWN)), Some("mine".into()));
        assert_eq!(taken(Some("mine"), true, None), Some("mine".into()));
        for (enabled, expected) in [(false, "not enabled"), (true, "not loaded")] {
            let error = choose(Some("min"), enabled, Some(KNOWN)).expect_err("refused");
            assert!(error.message.starts_with(AT) && error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_default_profile_is_loaded_or_nothing_runs() {
        let loads = Cell::new(0);
        let load = || {
            loads.set(loads.get() + 1);
            Ok(())
        };
        for (table, expected) in [(Some(KNOWN), 0), (Some("mine (enforce)\n"), 1), (None, 1)] {
            loads.set(0);
            let node = Node { enabled: true, table: &|| table.map(str::to_owned), load: &load };
            assert_eq!(node.choose(None).expect("loaded"), Some("pinion-default".into()));
            assert_eq!(loads.get(), expected, "{table:?}");
        }
        for table in [Some("mine (enforce)\n"), None] {
            let error = choose(None, true, table).expect_err("never unconfined");
            assert!(error.message.contains("cannot be loaded: no parser; install apparmor_parser"), "{error}");
        }
    }
}
