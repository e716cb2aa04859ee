//! AppArmor: what confines the process where the node has it.

use std::fs;

use crate::{Error, Security};

/// What `RuntimeDefault` means where an administrator has loaded it (`dist/apparmor`).
const DEFAULT: &str = "pinion-default";
const AT: &str = "config.linux.security_context.apparmor";

/// The profile to take on; `None`: none at all.
pub(super) fn apparmor(security: &Security) -> Result<Option<String>, Error> {
    if security.privileged {
        return Ok(None);
    }
    let enabled =
        fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|value| value.starts_with('Y'));
    let table = || fs::read_to_string("/sys/kernel/security/apparmor/profiles").ok();
    choose(security.apparmor.as_deref(), enabled, table)
}

/// `table`: what is loaded, a line each; absent where it cannot be read: then the kernel says whether it knows a profile.
fn choose(asked: Option<&str>, enabled: bool, table: impl Fn() -> Option<String>) -> Result<Option<String>, Error> {
    let loaded = |name: &str| {
        let table = table()?;
        Some(table.lines().any(|line| line.rsplit_once(" (").is_some_and(|(known, _)| known == name)))
    };
    match (asked, enabled) {
        (None | Some("unconfined"), false) => Ok(None),
        (None, true) => Ok(loaded(DEFAULT).filter(|loaded| *loaded).map(|_| DEFAULT.to_owned())),
        (Some(name), false) => {
            Err(Error::invalid(format!("{AT}: profile {name:?}, but AppArmor is not enabled on this node")))
        }
        (Some(name), true) if name != "unconfined" && loaded(name) == Some(false) => Err(Error::invalid(format!(
            "{AT}: profile {name:?} is not loaded on this node; load it with apparmor_parser"
        ))),
        (Some(name), true) => Ok(Some(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_taken_where_they_are_loaded() {
        let table = |text: &'static str| move || Some(text.to_owned());
        let taken = |asked, enabled, table: &dyn Fn() -> Option<String>| choose(asked, enabled, table).expect("taken");
        let known = "pinion-default (enforce)\n/usr/bin/man (enforce)\nmine (complain)\n";
        assert_eq!(taken(None, false, &table(known)), None);
        assert_eq!(taken(None, true, &table("")), None);
        assert_eq!(taken(None, true, &table(known)), Some("pinion-default".into()));
        assert_eq!(taken(Some("unconfined"), false, &table("")), None);
        assert_eq!(taken(Some("unconfined"), true, &table("")), Some("unconfined".into()));
        assert_eq!(taken(Some("mine"), true, &table(known)), Some("mine".into()));
        assert_eq!(taken(Some("mine"), true, &|| None), Some("mine".into()));
        for (enabled, want) in [(false, "not enabled"), (true, "not loaded")] {
            let error = choose(Some("min"), enabled, table(known)).expect_err("refused");
            assert!(error.message.starts_with(AT) && error.message.contains(want), "{error}");
        }
    }
}
