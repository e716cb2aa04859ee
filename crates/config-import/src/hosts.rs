//! `hosts.toml` of containerd's `certs.d`, which Pinion reads itself: only what it does not use is reported.

use std::path::Path;

use crate::{
    Import, ImportError, Outcome, Rule,
    apply::apply,
    rule::{unneeded, unserved},
    source::{list, read_if_present},
};

const READ: &str = "Pinion reads the file itself, from `registries.config_dir`";

/// Rules of the keys of `hosts.toml`.
pub(crate) const RULES: [Rule; 15] = [
    unneeded("server", "", READ),
    unneeded("capabilities", "", READ),
    unneeded("ca", "", READ),
    unneeded("client", "", READ),
    unneeded("skip_verify", "", READ),
    unneeded("override_path", "", READ),
    unneeded("header.*", "", READ),
    unserved("dial_timeout", "", DIAL),
    unneeded("host.*.capabilities", "", READ),
    unneeded("host.*.ca", "", READ),
    unneeded("host.*.client", "", READ),
    unneeded("host.*.skip_verify", "", READ),
    unneeded("host.*.override_path", "", READ),
    unneeded("host.*.header.*", "", READ),
    unserved("host.*.dial_timeout", "", DIAL),
];
const DIAL: &str = "accepted without effect: the time to connect is bounded by Pinion";

/// Adds findings for what Pinion does not use of the files of a directory.
pub(crate) fn check(directory: &Path, import: &mut Import) -> Result<(), ImportError> {
    for host in list(directory, |_| true)? {
        let file = host.join("hosts.toml");
        let Some(settings) = read_if_present(&file)? else { continue };
        import.files.push(file);
        let is_reported = |outcome: &Outcome| matches!(outcome, Outcome::Unserved(_) | Outcome::Unknown);
        import.findings.extend(apply(settings, &RULES).into_iter().filter(|found| is_reported(&found.outcome)));
    }
    Ok(())
}
