//! Invalid input: the error names it, and nothing is left over.

use std::fs;

use serde_json::json;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] =
    testbed::cases!(bundles, specs, commands_that_cannot_run, options, unwritable_files);

fn bundles() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["run", "-b", "/nonexistent", ID]).failed("/nonexistent");
    for (text, message) in
        [("", "config.json"), ("{", "config.json"), ("[]", "config.json"), ("{\"ociVersion\":\"1.0.0\"}", "root.path")]
    {
        fs::write(bundle.path("config.json"), text).expect("write config.json");
        bundle.pinrun(&["create", ID]).failed(message);
        bundle.assert_removed();
    }
    let large = fs::File::create(bundle.path("config.json")).expect("write config.json");
    large.set_len(1 << 30).expect("enlarge config.json");
    bundle.pinrun(&["create", ID]).failed("is larger than");
    fs::remove_file(bundle.path("config.json")).expect("remove config.json");
    bundle.pinrun(&["create", ID]).failed("No such file or directory");
    bundle.assert_removed();
}

fn specs() {
    let mut bundle = Bundle::new(&["true"]);
    let good = bundle.spec.clone();
    for (pointer, value, message) in [
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
        bundle.pinrun(&["create", ID]).failed(message);
        bundle.assert_removed();
        bundle.pinrun(&["run", ID]).failed(message);
        bundle.assert_removed();
    }
}

fn commands_that_cannot_run() {
    let bundle = Bundle::new(&["nothing-of-this-name"]);
    bundle.pinrun(&["run", ID]).failed("executable file not found in $PATH");
    bundle.assert_removed();
    let bundle = Bundle::new(&["/etc"]);
    bundle.pinrun(&["create", ID]).failed("permission denied");
    bundle.assert_removed();
    let bundle = Bundle::new(&["/bin/text"]);
    fs::write(bundle.path("rootfs/bin/text"), "no program").expect("write a text file");
    bundle.pinrun(&["create", ID]).failed("permission denied");
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(bundle.path("rootfs/bin/text"), mode).expect("chmod the text file");
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).failed("exec format error");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
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
    bundle.assert_removed();
    assert!(bundle.pinrun(&["--version"]).ok().starts_with("pinrun version "));
    assert!(bundle.pinrun(&["-v"]).ok().contains("\nspec: 1."));
    assert!(bundle.pinrun(&["--help"]).ok().contains("checkpoint"));
    assert!(bundle.pinrun(&["create", "--help"]).ok().contains("--console-socket"));
}

/// The pid file is written after the container is set up: if that fails, the container is removed.
fn unwritable_files() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", "--pid-file", "/nonexistent/pid", ID]).failed("/nonexistent/pid");
    bundle.assert_removed();
    fs::create_dir_all(bundle.root()).expect("create the root directory");
    std::os::unix::fs::symlink("/tmp", bundle.root().join(ID)).expect("create a symlink");
    bundle.pinrun(&["create", ID]).failed(ID);
    bundle.pinrun(&["delete", "-f", ID]).ok();
    assert_eq!(
        fs::read_link(bundle.root().join(ID)).expect("read the symlink, which must not be removed"),
        std::path::Path::new("/tmp")
    );
}
