//! `process.apparmorProfile` with a loaded profile, for the container and for exec'd processes.

use oci_tests::{Case, each_runtime};
use serde_json::json;

each_runtime!(
    the_profile_confines_the_container,
    an_execd_process_is_confined_too,
    an_execd_process_may_have_another_profile,
    an_unknown_profile_is_refused,
    unconfined_is_accepted,
);

/// A loaded profile that allows everything except access to one file. It is unloaded when this is dropped.
struct Profile<'a> {
    case: &'a Case,
    name: String,
    file: String,
}

impl<'a> Profile<'a> {
    fn load(case: &'a Case, denied: &str) -> Self {
        let name = format!("{}profile-{}", case.tag, denied.replace('/', "-"));
        let rules = "file, capability, network, mount, umount, pivot_root, signal, ptrace, unix, dbus,";
        let text = format!(
            "profile \"{name}\" flags=(attach_disconnected,mediate_deleted) {{\n  {rules}\n  deny {denied} rwklx,\n}}\n"
        );
        let file = case.file(&format!("profile{}", denied.replace('/', "-")), &text);
        case.program("apparmor_parser", &["--replace", "--skip-cache", &file]).ok();
        Self { case, name, file }
    }
}

impl Drop for Profile<'_> {
    fn drop(&mut self) {
        self.case.program("apparmor_parser", &["--remove", &self.file]).ok();
    }
}

const CHECK: &str =
    "cat /proc/self/attr/current; cat /etc/passwd > /dev/null && echo read; cat /etc/group > /dev/null && echo other";

fn the_profile_confines_the_container(case: &Case) {
    let profile = Profile::load(case, "/etc/passwd");
    let unconfined = case.output(CHECK, |_| {});
    assert_eq!(unconfined.lines().collect::<Vec<_>>(), ["unconfined", "read", "other"]);
    let text = case.output(CHECK, |bundle| bundle.spec["process"]["apparmorProfile"] = json!(profile.name));
    assert_eq!(text.lines().collect::<Vec<_>>(), [format!("{} (enforce)", profile.name).as_str(), "other"]);
}

fn an_execd_process_is_confined_too(case: &Case) {
    let profile = Profile::load(case, "/etc/passwd");
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["apparmorProfile"] = json!(profile.name);
    let container = case.container(bundle);
    container.create_and_start();
    let text = container.exec_script(CHECK);
    assert_eq!(text.lines().collect::<Vec<_>>(), [format!("{} (enforce)", profile.name).as_str(), "other"]);
    container.remove();
}

fn an_execd_process_may_have_another_profile(case: &Case) {
    let (first, second) = (Profile::load(case, "/etc/passwd"), Profile::load(case, "/etc/group"));
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["apparmorProfile"] = json!(first.name);
    let container = case.container(bundle);
    container.create_and_start();
    let outcome = container.exec(&["--apparmor", &second.name], &["/bin/sh", "-c", CHECK]);
    // The last command of the script is denied, so the script fails; its earlier output is checked.
    assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), [format!("{} (enforce)", second.name).as_str(), "read"]);
    container.remove();
}

fn an_unknown_profile_is_refused(case: &Case) {
    case.assert_refused(&["apparmor", "attr/exec"], |bundle| {
        bundle.spec["process"]["apparmorProfile"] = json!("no-such-profile")
    });
}

fn unconfined_is_accepted(case: &Case) {
    let text = case.output(CHECK, |bundle| bundle.spec["process"]["apparmorProfile"] = json!("unconfined"));
    assert_eq!(text.lines().collect::<Vec<_>>(), ["unconfined", "read", "other"]);
}
