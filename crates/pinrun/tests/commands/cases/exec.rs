//! `exec`.

use std::fs;

use serde_json::json;

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    a_command_returns_its_output_and_exit_code,
    options_change_the_process,
    capabilities_are_added_but_not_inheritable,
    a_process_is_read_from_a_file,
    a_detached_command_has_a_pid_file,
    failures_have_runcs_messages,
    a_paused_container_needs_an_option,
    a_command_runs_in_a_child_cgroup,
);

fn running() -> Bundle {
    let mut bundle = Bundle::new(&["sleep", "1000"]);
    bundle.spec["process"]["capabilities"] = json!({"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"],
                                                    "permitted": ["CAP_KILL"]});
    bundle.write();
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle
}

fn exec(bundle: &Bundle, arguments: &[&str]) -> Outcome {
    bundle.pinrun(&[&["exec"], arguments].concat())
}

fn delete(bundle: &Bundle) {
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.assert_removed();
}

fn a_command_returns_its_output_and_exit_code() {
    let bundle = running();
    let outcome = exec(&bundle, &[ID, "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(exec(&bundle, &[ID, "sh", "-c", "kill -9 $$"]).code, 137);
    delete(&bundle);
}

fn options_change_the_process() {
    let bundle = running();
    let options = ["--cwd", "/tmp", "-e", "A=1", "-e", "A=2", "-u", "5:6", "-g", "7", "-g", "8", "--no-new-privs", ID];
    let script = "pwd; echo $A $HOME; grep -e ^Uid -e ^Gid -e ^Groups -e ^NoNew /proc/self/status";
    let output = exec(&bundle, &[&options[..], &["sh", "-c", script]].concat()).ok();
    let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["/tmp"]);
    assert_eq!(lines[1][0], "2");
    assert_eq!(lines[2], ["Uid:", "5", "5", "5", "5"]);
    assert_eq!(lines[3], ["Gid:", "6", "6", "6", "6"]);
    assert_eq!(lines[4], ["Groups:", "7", "8"]);
    assert_eq!(lines[5], ["NoNewPrivs:", "1"]);
    delete(&bundle);
}

/// CVE-2022-29162: inheritable capabilities would be regained at execve of a program with inheritable file
/// capabilities.
fn capabilities_are_added_but_not_inheritable() {
    let bundle = running();
    let status = exec(&bundle, &["--cap", "CAP_NET_RAW", ID, "cat", "/proc/self/status"]).ok();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("find the capability set");
        u64::from_str_radix(line.trim(), 16).expect("parse the capability set")
    };
    let (kill, net_raw) = (1 << 5, 1 << 13);
    for name in ["CapBnd:", "CapPrm:", "CapEff:"] {
        assert_eq!(set(name), kill | net_raw, "{name}");
    }
    assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0));
    delete(&bundle);
}

fn a_process_is_read_from_a_file() {
    let bundle = running();
    let process = json!({"args": ["sh", "-c", "echo $B; exit 3"], "cwd": "/", "env": ["PATH=/bin", "B=b"],
                         "user": {"uid": 0, "gid": 0}});
    fs::write(bundle.path("process.json"), process.to_string()).expect("write process.json");
    let outcome = exec(&bundle, &["--process", "process.json", ID]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "b\n"));
    delete(&bundle);
}

fn a_detached_command_has_a_pid_file() {
    let bundle = running();
    exec(&bundle, &["-d", "--pid-file", "pid", ID, "sleep", "1000"]).ok();
    let pid = fs::read_to_string(bundle.path("pid")).expect("read the pid file");
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("read the command line of the process");
    assert_eq!(command, "sleep\x001000\x00");
    let pids: Vec<i64> =
        serde_json::from_str(&bundle.pinrun(&["ps", "-f", "json", ID]).ok()).expect("parse the list of pids");
    assert!(pids.len() == 2 && pids.contains(&pid.parse().expect("parse the pid")), "{pids:?}");
    assert_eq!(bundle.pinrun(&["ps", ID]).ok().lines().count(), 3);
    delete(&bundle);
}

fn failures_have_runcs_messages() {
    let bundle = running();
    for (command, message) in
        [("nope", "executable file not found in $PATH"), ("/tmp", "denied"), ("/no", "no such file")]
    {
        let outcome = exec(&bundle, &[ID, command]);
        assert_eq!(outcome.code, 255, "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{outcome:?}");
    }
    for arguments in [&["-u", "x", ID, "true"][..], &["-e", "x", ID, "true"], &["--cwd", "/no", ID, "true"], &[ID]] {
        assert_eq!(exec(&bundle, arguments).code, 255, "{arguments:?}");
    }
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    bundle.wait_until("stopped");
    let outcome = exec(&bundle, &[ID, "true"]);
    assert!(outcome.code == 255 && outcome.stderr.contains("stopped"), "{outcome:?}");
    delete(&bundle);
}

fn a_paused_container_needs_an_option() {
    let bundle = running();
    bundle.pinrun(&["pause", ID]).ok();
    assert_eq!(bundle.status(), "paused");
    bundle.pinrun(&["pause", ID]).failed("is not running or created: paused");
    let outcome = exec(&bundle, &[ID, "true"]);
    assert!(outcome.code == 255 && outcome.stderr.contains("--ignore-paused"), "{outcome:?}");
    bundle.pinrun(&["resume", ID]).ok();
    assert_eq!(bundle.status(), "running");
    bundle.pinrun(&["resume", ID]).failed("is not paused: running");
    exec(&bundle, &[ID, "true"]).ok();
    delete(&bundle);
}

fn a_command_runs_in_a_child_cgroup() {
    let bundle = running();
    let outcome = exec(&bundle, &["--cgroup", "below", ID, "true"]);
    assert!(outcome.code == 255 && outcome.stderr.contains("below"), "{outcome:?}");
    let trees = cgroup::Hierarchies::open().expect("open the cgroup trees");
    let below = bundle.group.join("below").expect("join the path");
    let group = cgroup::Group::create(&trees, &below, &cgroup::Limits::default()).expect("create a cgroup");
    let cgroups = exec(&bundle, &["--cgroup", "below", ID, "cat", "/proc/self/cgroup"]).ok();
    assert!(cgroups.lines().all(|line| line.ends_with("/below") || line.contains("name=")), "{cgroups}");
    group.remove().expect("remove the empty cgroup");
    delete(&bundle);
}
