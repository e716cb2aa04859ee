//! Commands in a running container.

use std::fs;

use serde_json::json;

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = crate::cases!(
    a_command_gives_its_output_and_exit_code,
    options_change_the_process,
    capabilities_are_added_but_not_inheritable,
    a_process_is_read_from_a_file,
    a_detached_command_has_a_pid_file,
    what_is_not_there_is_told_in_runcs_words,
    a_paused_container_is_asked_for,
    a_command_runs_in_a_group_below,
);

fn running() -> Bundle {
    let mut bundle = Bundle::new(&["sleep", "1000"]);
    bundle.spec["process"]["capabilities"] = json!({"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"],
                                                    "permitted": ["CAP_KILL"]});
    bundle.write();
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle
}

fn exec(bundle: &Bundle, words: &[&str]) -> Outcome {
    bundle.pinrun(&[&["exec"], words].concat())
}

fn end(bundle: &Bundle) {
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.is_gone();
}

fn a_command_gives_its_output_and_exit_code() {
    let bundle = running();
    let outcome = exec(&bundle, &[ID, "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(exec(&bundle, &[ID, "sh", "-c", "kill -9 $$"]).code, 137);
    end(&bundle);
}

fn options_change_the_process() {
    let bundle = running();
    let words = ["--cwd", "/tmp", "-e", "A=1", "-e", "A=2", "-u", "5:6", "-g", "7", "-g", "8", "--no-new-privs", ID];
    let script = "pwd; echo $A $HOME; grep -e ^Uid -e ^Gid -e ^Groups -e ^NoNew /proc/self/status";
    fs::copy(bundle.path("rootfs/bin/busybox"), bundle.path("rootfs/bin/grep")).expect("grep");
    let said = exec(&bundle, &[&words[..], &["sh", "-c", script]].concat()).ok();
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["/tmp"]);
    assert_eq!(lines[1][0], "2");
    assert_eq!(lines[2], ["Uid:", "5", "5", "5", "5"]);
    assert_eq!(lines[3], ["Gid:", "6", "6", "6", "6"]);
    assert_eq!(lines[4], ["Groups:", "7", "8"]);
    assert_eq!(lines[5], ["NoNewPrivs:", "1"]);
    end(&bundle);
}

/// CVE-2022-29162: inheritable capabilities would come back at the next execve of a program that has some.
fn capabilities_are_added_but_not_inheritable() {
    let bundle = running();
    let said = exec(&bundle, &["--cap", "CAP_NET_RAW", ID, "cat", "/proc/self/status"]).ok();
    let set = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).expect("the set");
        u64::from_str_radix(line.trim(), 16).expect("hexadecimal")
    };
    let (kill, net_raw) = (1 << 5, 1 << 13);
    for name in ["CapBnd:", "CapPrm:", "CapEff:"] {
        assert_eq!(set(name), kill | net_raw, "{name}");
    }
    assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0));
    end(&bundle);
}

fn a_process_is_read_from_a_file() {
    let bundle = running();
    let process = json!({"args": ["sh", "-c", "echo $B; exit 3"], "cwd": "/", "env": ["PATH=/bin", "B=b"],
                         "user": {"uid": 0, "gid": 0}});
    fs::write(bundle.path("process.json"), process.to_string()).expect("process.json");
    let outcome = exec(&bundle, &["--process", "process.json", ID]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "b\n"));
    end(&bundle);
}

fn a_detached_command_has_a_pid_file() {
    let bundle = running();
    exec(&bundle, &["-d", "--pid-file", "pid", ID, "sleep", "1000"]).ok();
    let pid = fs::read_to_string(bundle.path("pid")).expect("pid file");
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert_eq!(command, "sleep\x001000\x00");
    let pids: Vec<i64> = serde_json::from_str(&bundle.pinrun(&["ps", "-f", "json", ID]).ok()).expect("JSON");
    assert!(pids.len() == 2 && pids.contains(&pid.parse().expect("a number")), "{pids:?}");
    assert_eq!(bundle.pinrun(&["ps", ID]).ok().lines().count(), 3);
    end(&bundle);
}

fn what_is_not_there_is_told_in_runcs_words() {
    let bundle = running();
    for (command, words) in
        [("nope", "executable file not found in $PATH"), ("/tmp", "denied"), ("/no", "no such file")]
    {
        let outcome = exec(&bundle, &[ID, command]);
        assert_eq!(outcome.code, 255, "{outcome:?}");
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
    for words in [&["-u", "x", ID, "true"][..], &["-e", "x", ID, "true"], &["--cwd", "/no", ID, "true"], &[ID]] {
        assert_eq!(exec(&bundle, words).code, 255, "{words:?}");
    }
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    bundle.wait_until("stopped");
    let outcome = exec(&bundle, &[ID, "true"]);
    assert!(outcome.code == 255 && outcome.stderr.contains("stopped"), "{outcome:?}");
    end(&bundle);
}

fn a_paused_container_is_asked_for() {
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
    end(&bundle);
}

fn a_command_runs_in_a_group_below() {
    let bundle = running();
    let outcome = exec(&bundle, &["--cgroup", "below", ID, "true"]);
    assert!(outcome.code == 255 && outcome.stderr.contains("below"), "{outcome:?}");
    let trees = cgroup::Hierarchies::open().expect("trees");
    let below = bundle.group.join("below").expect("a path");
    let group = cgroup::Group::create(&trees, &below, &cgroup::Limits::default()).expect("a group");
    let said = exec(&bundle, &["--cgroup", "below", ID, "cat", "/proc/self/cgroup"]).ok();
    assert!(said.lines().all(|line| line.ends_with("/below") || line.contains("name=")), "{said}");
    group.remove().expect("nobody is left in it");
    end(&bundle);
}
