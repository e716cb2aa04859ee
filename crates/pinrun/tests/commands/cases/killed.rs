//! pinrun killed at any moment: the container is whole or not there, and goes.

use std::{
    fs,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use cgroup::{Group, Hierarchies, Limits};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] =
    crate::cases!(create_at_any_moment, start_at_any_moment, what_is_left_is_taken_over, two_at_once);

/// Kills at so many moments of a command's life.
const MOMENTS: u32 = 40;

/// How long the command takes when nobody kills it.
fn lasts(bundle: &Bundle, words: &[&str]) -> Duration {
    let start = Instant::now();
    bundle.pinrun(words).ok();
    start.elapsed()
}

/// Starts the command and kills it after that long.
pub(super) fn kill_after(bundle: &Bundle, words: &[&str], moment: Duration) {
    let mut child = bundle.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pinrun");
    sleep(moment);
    // It may have ended.
    let _ = child.kill();
    child.wait().expect("wait");
}

fn create_at_any_moment() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    let whole = lasts(&bundle, &["create", ID]);
    bundle.pinrun(&["delete", ID]).ok();
    for moment in 0..MOMENTS {
        kill_after(&bundle, &["create", ID], whole * moment / (MOMENTS - 1));
        if moment % 2 == 0 {
            bundle.pinrun(&["delete", "-f", ID]).ok();
            bundle.is_gone();
        } else if bundle.pinrun(&["state", ID]).code == 0 {
            bundle.pinrun(&["delete", "-f", ID]).ok();
        }
        bundle.pinrun(&["create", ID]).ok();
        assert_eq!(bundle.status(), "created");
        bundle.pinrun(&["delete", ID]).ok();
        bundle.is_gone();
    }
}

fn start_at_any_moment() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["create", ID]).ok();
    let whole = lasts(&bundle, &["start", ID]);
    bundle.pinrun(&["delete", "-f", ID]).ok();
    for moment in 0..MOMENTS {
        bundle.pinrun(&["create", ID]).ok();
        kill_after(&bundle, &["start", ID], whole * moment / (MOMENTS - 1));
        match bundle.status().as_str() {
            // Either it was not told, or it is just on its way.
            "created" => drop(bundle.pinrun(&["start", ID])),
            status => assert_eq!(status, "running"),
        }
        bundle.wait_until("running");
        bundle.pinrun(&["delete", "-f", ID]).ok();
        bundle.is_gone();
    }
}

/// As a create that was killed between the making of the group and that of the child.
fn what_is_left_is_taken_over() {
    let bundle = Bundle::new(&["true"]);
    let leave = || {
        fs::create_dir_all(bundle.root().join(ID)).expect("a directory");
        std::os::unix::fs::symlink(bundle.group.as_str(), bundle.root().join(ID).join("group")).expect("a note");
        fs::write(bundle.root().join(ID).join(".state.json"), "{\"vers").expect("half a state");
        Group::create(&Hierarchies::open().expect("trees"), &bundle.group, &Limits::default()).expect("a group");
    };
    leave();
    assert_eq!(bundle.pinrun(&["list", "-q"]).ok(), "");
    bundle.pinrun(&["delete", ID]).failed("container does not exist");
    bundle.is_gone();
    leave();
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.is_gone();
    leave();
    bundle.pinrun(&["run", ID]).ok();
    bundle.is_gone();
}

/// Of many creations of one id one succeeds, and of many starts.
fn two_at_once() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    for words in [["create", ID], ["start", ID]] {
        let spawn = || bundle.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pinrun");
        let children: Vec<_> = (0..6).map(|_| spawn()).collect();
        let codes = children.into_iter().map(|mut child| child.wait().expect("wait").code());
        assert_eq!(codes.filter(|code| *code == Some(0)).count(), 1, "{words:?}");
    }
    assert_eq!(bundle.status(), "running");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.is_gone();
}
