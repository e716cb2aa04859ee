//! What is wrong is named, and nothing is left of it.

use std::fs;

use serde_json::json;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] =
    crate::cases!(bundles, specs, commands_that_cannot_run, options, files_in_the_way);

fn bundles() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["run", "-b", "/nonexistent", ID]).failed("/nonexistent");
    for (text, words) in
        [("", "config.json"), ("{", "config.json"), ("[]", "config.json"), ("{\"ociVersion\":\"1.0.0\"}", "root.path")]
    {
        fs::write(bundle.path("config.json"), text).expect("config.json");
        bundle.pinrun(&["create", ID]).failed(words);
        bundle.is_gone();
    }
    let large = fs::File::create(bundle.path("config.json")).expect("config.json");
    large.set_len(1 << 30).expect("a large file");
    bundle.pinrun(&["create", ID]).failed("is larger than");
    fs::remove_file(bundle.path("config.json")).expect("remove");
    bundle.pinrun(&["create", ID]).failed("No such file or directory");
    bundle.is_gone();
}

fn specs() {
    let mut bundle = Bundle::new(&["true"]);
    let good = bundle.spec.clone();
    for (pointer, value, words) in [
        ("/process/args", json!([]), "process.args"),
        ("/process/cwd", json!("relative"), "process.cwd"),
        ("/root/path", json!("nothing"), "root.path"),
        ("/linux/cgroupsPath", json!("/a/../b"), "cgroupsPath"),
        ("/linux/namespaces", json!([{"type": "pid"}, {"type": "pid"}]), "namespaces"),
        ("/linux/namespaces", json!([{"type": "pid"}, {"type": "nonsense"}]), "linux.namespaces[1].type"),
        ("/mounts", json!([{"destination": "/x", "type": "nosuchfs", "source": "x"}]), "nosuchfs"),
        ("/ociVersion", json!("9.0"), "ociVersion"),
        ("/linux/seccomp/defaultAction", json!("SCMP_ACT_NOPE"), "SCMP_ACT_NOPE"),
    ] {
        bundle.spec = good.clone();
        *bundle.spec.pointer_mut(pointer).expect(pointer) = value;
        bundle.write();
        bundle.pinrun(&["create", ID]).failed(words);
        bundle.is_gone();
        bundle.pinrun(&["run", ID]).failed(words);
        bundle.is_gone();
    }
}

fn commands_that_cannot_run() {
    let bundle = Bundle::new(&["nothing-of-this-name"]);
    bundle.pinrun(&["run", ID]).failed("executable file not found in $PATH");
    bundle.is_gone();
    let bundle = Bundle::new(&["/etc"]);
    bundle.pinrun(&["create", ID]).failed("permission denied");
    bundle.is_gone();
    let bundle = Bundle::new(&["/bin/text"]);
    fs::write(bundle.path("rootfs/bin/text"), "no program").expect("a file");
    bundle.pinrun(&["create", ID]).failed("permission denied");
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(bundle.path("rootfs/bin/text"), mode).expect("mode");
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).failed("exec format error");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
}

fn options() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["nonsense"]).failed("nonsense");
    bundle.pinrun(&["create", "--nonsense", ID]).failed("nonsense");
    bundle.pinrun(&["create"]).failed("container id");
    bundle.pinrun(&["create", ID, "two"]).failed("two");
    bundle.pinrun(&["create", "--preserve-fds", "many", ID]).failed("many");
    bundle.pinrun(&["create", "--preserve-fds", "50", ID]).failed("is not open");
    bundle.pinrun(&["create", "--console-socket", "/nonexistent", ID]).failed("/nonexistent");
    bundle.is_gone();
    assert!(bundle.pinrun(&["--version"]).ok().starts_with("pinrun version "));
    assert!(bundle.pinrun(&["-v"]).ok().contains("\nspec: 1."));
    assert!(bundle.pinrun(&["--help"]).ok().contains("checkpoint"));
    assert!(bundle.pinrun(&["create", "--help"]).ok().contains("--console-socket"));
}

/// The pid file cannot be written when the container is whole already: it is taken away.
fn files_in_the_way() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", "--pid-file", "/nonexistent/pid", ID]).failed("/nonexistent/pid");
    bundle.is_gone();
    fs::create_dir_all(bundle.root()).expect("the root");
    std::os::unix::fs::symlink("/tmp", bundle.root().join(ID)).expect("a symlink");
    bundle.pinrun(&["create", ID]).failed(ID);
    bundle.pinrun(&["delete", "-f", ID]).ok();
    assert_eq!(fs::read_link(bundle.root().join(ID)).expect("it stays"), std::path::Path::new("/tmp"));
}
