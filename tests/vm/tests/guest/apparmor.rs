//! `process.apparmorProfile` with a profile that the kernel has, for the container and for commands in it.

use oci_tests::{Case, each_runtime};
use serde_json::json;

each_runtime!(
    the_profile_confines,
    a_command_is_confined_too,
    a_command_may_have_another,
    an_unknown_profile_is_refused,
    unconfined_is_taken,
);

/// A profile that allows all but reading a file, loaded while this lives.
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

const LOOK: &str =
    "cat /proc/self/attr/current; cat /etc/passwd > /dev/null && echo read; cat /etc/group > /dev/null && echo other";

fn the_profile_confines(case: &Case) {
    let profile = Profile::load(case, "/etc/passwd");
    let free = case.output(LOOK, |_| {});
    assert_eq!(free.lines().collect::<Vec<_>>(), ["unconfined", "read", "other"]);
    let text = case.output(LOOK, |bundle| bundle.spec["process"]["apparmorProfile"] = json!(profile.name));
    assert_eq!(text.lines().collect::<Vec<_>>(), [format!("{} (enforce)", profile.name).as_str(), "other"]);
}

fn a_command_is_confined_too(case: &Case) {
    let profile = Profile::load(case, "/etc/passwd");
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["apparmorProfile"] = json!(profile.name);
    let container = case.container(bundle);
    container.started();
    let text = container.inside(LOOK);
    assert_eq!(text.lines().collect::<Vec<_>>(), [format!("{} (enforce)", profile.name).as_str(), "other"]);
    container.remove();
}

fn a_command_may_have_another(case: &Case) {
    let (first, second) = (Profile::load(case, "/etc/passwd"), Profile::load(case, "/etc/group"));
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["apparmorProfile"] = json!(first.name);
    let container = case.container(bundle);
    container.started();
    let outcome = container.exec(&["--apparmor", &second.name], &["/bin/sh", "-c", LOOK]);
    // Its last word is denied, so it fails; what it said before counts.
    assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), [format!("{} (enforce)", second.name).as_str(), "read"]);
    container.remove();
}

fn an_unknown_profile_is_refused(case: &Case) {
    case.refused(&["apparmor", "attr/exec"], |bundle| {
        bundle.spec["process"]["apparmorProfile"] = json!("no-such-profile")
    });
}

fn unconfined_is_taken(case: &Case) {
    let text = case.output(LOOK, |bundle| bundle.spec["process"]["apparmorProfile"] = json!("unconfined"));
    assert_eq!(text.lines().collect::<Vec<_>>(), ["unconfined", "read", "other"]);
}
