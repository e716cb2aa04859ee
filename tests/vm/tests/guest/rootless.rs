//! Rootless containers of a user with a systemd user instance: user namespaces with newuidmap, a delegated cgroup, no
//! capabilities outside.

use oci_tests::{Case, each_runtime};
use serde_json::{Value, json};

each_runtime!(root_is_mapped_to_the_user, all_ids_are_mapped);
// crun does not pass limits to systemd, and cannot exec from outside of the cgroup.
crate::tests_on!([pinrun Pinrun, runc Runc](the_user_systemd_sets_limits, a_process_can_be_execd));
// The other runtimes refuse even a container without limits.
crate::tests_on!([ours Pinrun](
    no_limit_without_a_cgroup,
    an_execd_process_is_in_the_cgroup,
    a_delegated_cgroup_is_used,
));

/// Changes the specification as a rootless engine does.
fn change(spec: &mut Value) {
    let user = rustix::process::getuid().as_raw();
    assert_ne!(user, 0, "these tests must be run by an unprivileged user");
    let ids = json!([{ "containerID": 0, "hostID": user, "size": 1 }, { "containerID": 1, "hostID": 100_000, "size": 65_536 }]);
    spec["linux"]["uidMappings"] = ids.clone();
    spec["linux"]["gidMappings"] = ids;
    spec["linux"]["namespaces"].as_array_mut().expect("namespaces").push(json!({ "type": "user" }));
    spec["linux"]["resources"] = json!({});
}

fn call(case: &Case, args: &[&str]) -> oci_tests::Outcome {
    case.call(&[&["--systemd-cgroup"], args].concat())
}

fn run(case: &Case, script: &str, more: impl FnOnce(&mut Value)) -> oci_tests::Outcome {
    let mut bundle = case.script(script);
    change(&mut bundle.spec);
    let id = format!("{}rootless", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("user.slice:test:{id}"));
    more(&mut bundle.spec);
    bundle.write();
    call(case, &["run", "--bundle", bundle.directory.to_str().expect("ASCII"), &id])
}

fn root_is_mapped_to_the_user(case: &Case) {
    let outcome = run(case, "id -u; id -g; touch /tmp/mine; cat /proc/self/uid_map; hostname", |_| {});
    let lines: Vec<Vec<&str>> = outcome.ok().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[..4], [vec!["0"], vec!["0"], vec!["0", "1000", "1"], vec!["1", "100000", "65536"]]);
    assert_eq!(lines[4], ["case"]);
}

fn all_ids_are_mapped(case: &Case) {
    let outcome = run(case, "touch /tmp/f; chown 33:44 /tmp/f; stat -c %u:%g /tmp/f; id -u", |_| {});
    assert_eq!(outcome.ok(), "33:44\n0\n");
}

fn the_user_systemd_sets_limits(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    let id = format!("{}rootless", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("user.slice:test:{id}"));
    bundle.spec["linux"]["resources"] = json!({ "pids": { "limit": 44 }, "memory": { "limit": 67_108_864 } });
    bundle.write();
    call(case, &["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]).ok();
    call(case, &["start", &id]).ok();
    let unit = format!("test-{id}.scope");
    let property = |name: &str| {
        case.program("systemctl", &["--user", "show", "--value", "-p", name, &unit]).ok().trim().to_owned()
    };
    assert_eq!((property("TasksMax").as_str(), property("MemoryMax").as_str()), ("44", "67108864"));
    let group = format!("/sys/fs/cgroup{}", property("ControlGroup"));
    assert_eq!(std::fs::read_to_string(format!("{group}/pids.max")).expect("its cgroup").trim(), "44");
    call(case, &["delete", "--force", &id]).ok();
    oci_tests::wait_until("systemd has unloaded the unit", || property("LoadState") == "not-found");
}

fn a_process_can_be_execd(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    let id = format!("{}rootless", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("user.slice:test:{id}"));
    bundle.write();
    call(case, &["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]).ok();
    call(case, &["start", &id]).ok();
    assert_eq!(call(case, &["exec", &id, "/bin/sh", "-c", "id -u; hostname"]).ok(), "0\ncase\n");
    call(case, &["kill", &id, "KILL"]).ok();
    call(case, &["delete", "--force", &id]).ok();
}

/// The limits apply to an exec'd process, although its caller is in another cgroup and may not move processes.
fn an_execd_process_is_in_the_cgroup(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    let id = format!("{}rootless", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("user.slice:test:{id}"));
    bundle.write();
    call(case, &["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]).ok();
    call(case, &["start", &id]).ok();
    let outcome = call(case, &["exec", &id, "/bin/sh", "-c", "cat /proc/self/cgroup"]);
    assert!(outcome.ok().starts_with("0::/") && !outcome.stdout.contains(".."), "{}", outcome.stdout);
    call(case, &["kill", &id, "KILL"]).ok();
    call(case, &["delete", "--force", &id]).ok();
}

/// With the cgroupfs driver in a cgroup of root: a container without limits gets no cgroup, a limit is refused.
fn no_limit_without_a_cgroup(case: &Case) {
    let bundle = |resources: Value| {
        let mut bundle = case.script("echo ran");
        change(&mut bundle.spec);
        bundle.spec["linux"]["resources"] = resources;
        bundle
    };
    let id = format!("{}free", case.tag);
    let run = |resources| {
        let mut bundle = bundle(resources);
        bundle.spec["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        bundle.write();
        case.call(&["run", "--bundle", bundle.directory.to_str().expect("ASCII"), &id])
    };
    assert_eq!(run(json!({})).ok(), "ran\n");
    run(json!({ "pids": { "limit": 44 } })).error_with(&["pids", "cgroup"]);
}

/// With the cgroupfs driver in a delegated cgroup: the cgroup of the container, with its limit, is next to the
/// caller's.
fn a_delegated_cgroup_is_used(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    bundle.spec["linux"]["resources"] = json!({ "pids": { "limit": 44 } });
    bundle.write();
    let id = format!("{}second", case.tag);
    let inner = case.command(&["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]);
    let mut args = vec!["--user", "--scope", "--quiet", "--property=Delegate=yes"];
    args.push(inner.get_program().to_str().expect("ASCII"));
    args.extend(inner.get_args().map(|arg| arg.to_str().expect("ASCII")));
    case.program("systemd-run", &args).ok();
    let pid = case.call(&["state", &id]).json()["pid"].as_i64().expect("pid");
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process exists");
    let path = membership.trim().strip_prefix("0::").expect("cgroup v2 only");
    assert!(path.contains("/user@1000.service/") && path.ends_with(&id), "{path}");
    let limit = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/pids.max")).expect("its cgroup");
    assert_eq!(limit.trim(), "44");
    case.call(&["delete", "--force", &id]).ok();
    assert!(!std::path::Path::new(&format!("/sys/fs/cgroup{path}")).exists());
}
