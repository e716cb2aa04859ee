//! pinrun killed at any moment: the container exists completely or not at all, and can be deleted.

use std::{
    fs,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use cgroup::{Group, Hierarchies, Limits};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    create_killed_at_any_moment,
    start_killed_at_any_moment,
    leftovers_are_taken_over,
    one_of_concurrent_calls_succeeds
);

/// The number of moments during a command at which it is killed.
const MOMENTS: u32 = 40;

/// Measures how long the command takes if it is not killed.
fn duration(bundle: &Bundle, arguments: &[&str]) -> Duration {
    let start = Instant::now();
    bundle.pinrun(arguments).ok();
    start.elapsed()
}

/// Starts the command and kills it after `moment`.
pub(super) fn kill_after(bundle: &Bundle, arguments: &[&str], moment: Duration) {
    let mut child =
        bundle.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spawn pinrun");
    sleep(moment);
    // It may have exited already.
    let _ = child.kill();
    child.wait().expect("wait");
}

fn create_killed_at_any_moment() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    let whole = duration(&bundle, &["create", ID]);
    bundle.pinrun(&["delete", ID]).ok();
    for moment in 0..MOMENTS {
        kill_after(&bundle, &["create", ID], whole * moment / (MOMENTS - 1));
        if moment % 2 == 0 {
            bundle.pinrun(&["delete", "-f", ID]).ok();
            bundle.assert_removed();
        } else if bundle.pinrun(&["state", ID]).code == 0 {
            bundle.pinrun(&["delete", "-f", ID]).ok();
        }
        bundle.pinrun(&["create", ID]).ok();
        assert_eq!(bundle.status(), "created");
        bundle.pinrun(&["delete", ID]).ok();
        bundle.assert_removed();
    }
}

fn start_killed_at_any_moment() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["create", ID]).ok();
    let whole = duration(&bundle, &["start", ID]);
    bundle.pinrun(&["delete", "-f", ID]).ok();
    for moment in 0..MOMENTS {
        bundle.pinrun(&["create", ID]).ok();
        kill_after(&bundle, &["start", ID], whole * moment / (MOMENTS - 1));
        match bundle.status().as_str() {
            // Either the container was not started, or it is just about to execute its program.
            "created" => drop(bundle.pinrun(&["start", ID])),
            status => assert_eq!(status, "running"),
        }
        bundle.wait_until("running");
        bundle.pinrun(&["delete", "-f", ID]).ok();
        bundle.assert_removed();
    }
}

/// Leftovers of a create that was killed after it created the cgroup and before it cloned the init.
fn leftovers_are_taken_over() {
    let bundle = Bundle::new(&["true"]);
    let leave = || {
        fs::create_dir_all(bundle.root().join(ID)).expect("create the state directory");
        std::os::unix::fs::symlink(bundle.group.as_str(), bundle.root().join(ID).join("group"))
            .expect("write the cgroup path");
        fs::write(bundle.root().join(ID).join(".state.json"), "{\"vers").expect("write a partial state");
        Group::create(&Hierarchies::open().expect("open the cgroup trees"), &bundle.group, &Limits::default())
            .expect("create the cgroup");
    };
    leave();
    assert_eq!(bundle.pinrun(&["list", "-q"]).ok(), "");
    bundle.pinrun(&["delete", ID]).failed("container does not exist");
    bundle.assert_removed();
    leave();
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.assert_removed();
    leave();
    bundle.pinrun(&["run", ID]).ok();
    bundle.assert_removed();
}

/// Of many concurrent creations and starts of one id, one each succeeds.
fn one_of_concurrent_calls_succeeds() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    for arguments in [["create", ID], ["start", ID]] {
        let spawn = || {
            let mut command = bundle.command(&arguments);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spawn pinrun")
        };
        let children: Vec<_> = (0..6).map(|_| spawn()).collect();
        let codes = children.into_iter().map(|mut child| child.wait().expect("wait").code());
        assert_eq!(codes.filter(|code| *code == Some(0)).count(), 1, "{arguments:?}");
    }
    assert_eq!(bundle.status(), "running");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.assert_removed();
}
