//! An ordinary user with a systemd of their own: user namespaces by newuidmap, a delegated group, no capability
//! outside.

use oci_tests::{Case, each_runtime};
use serde_json::{Value, json};

each_runtime!(root_inside_is_the_user_outside, all_ids_are_mapped);
// crun tells systemd of no limit, and has no way for a command into a group from outside.
crate::tests_on!([pinrun Pinrun, runc Runc](a_limit_by_the_users_systemd, a_command_joins));
// The others refuse a container without limits, too.
crate::tests_on!([ours Pinrun](no_limit_without_a_group, a_command_is_counted, a_delegated_group_is_used));

/// As an engine of an ordinary user writes it.
fn change(spec: &mut Value) {
    let user = rustix::process::getuid().as_raw();
    assert_ne!(user, 0, "these tests are for an ordinary user");
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

fn root_inside_is_the_user_outside(case: &Case) {
    let outcome = run(case, "id -u; id -g; touch /tmp/mine; cat /proc/self/uid_map; hostname", |_| {});
    let lines: Vec<Vec<&str>> = outcome.ok().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[..4], [vec!["0"], vec!["0"], vec!["0", "1000", "1"], vec!["1", "100000", "65536"]]);
    assert_eq!(lines[4], ["case"]);
}

fn all_ids_are_mapped(case: &Case) {
    let outcome = run(case, "touch /tmp/f; chown 33:44 /tmp/f; stat -c %u:%g /tmp/f; id -u", |_| {});
    assert_eq!(outcome.ok(), "33:44\n0\n");
}

fn a_limit_by_the_users_systemd(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    let id = format!("{}rootless", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("user.slice:test:{id}"));
    bundle.spec["linux"]["resources"] = json!({ "pids": { "limit": 44 }, "memory": { "limit": 67_108_864 } });
    bundle.write();
    call(case, &["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]).ok();
    call(case, &["start", &id]).ok();
    let unit = format!("test-{id}.scope");
    let shown = |property: &str| {
        case.program("systemctl", &["--user", "show", "--value", "-p", property, &unit]).ok().trim().to_owned()
    };
    assert_eq!((shown("TasksMax").as_str(), shown("MemoryMax").as_str()), ("44", "67108864"));
    let group = format!("/sys/fs/cgroup{}", shown("ControlGroup"));
    assert_eq!(std::fs::read_to_string(format!("{group}/pids.max")).expect("its group").trim(), "44");
    call(case, &["delete", "--force", &id]).ok();
    oci_tests::wait_until("systemd forgets the unit", || shown("LoadState") == "not-found");
}

fn a_command_joins(case: &Case) {
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

/// Its limits hold for it, though the caller stands elsewhere and may not move a process there by itself.
fn a_command_is_counted(case: &Case) {
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

/// With the cgroupfs driver from a place that is nobody's but root's: no limit, no group, and a clear word for a limit.
fn no_limit_without_a_group(case: &Case) {
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

/// Without systemd's help, but from a place that was delegated: the container stands beside its caller, with its limit.
fn a_delegated_group_is_used(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    change(&mut bundle.spec);
    bundle.spec["linux"]["resources"] = json!({ "pids": { "limit": 44 } });
    bundle.write();
    let id = format!("{}beside", case.tag);
    let inner = case.command(&["create", "--bundle", bundle.directory.to_str().expect("ASCII"), &id]);
    let mut args = vec!["--user", "--scope", "--quiet", "--property=Delegate=yes"];
    args.push(inner.get_program().to_str().expect("ASCII"));
    args.extend(inner.get_args().map(|arg| arg.to_str().expect("ASCII")));
    case.program("systemd-run", &args).ok();
    let pid = case.call(&["state", &id]).json()["pid"].as_i64().expect("pid");
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it waits");
    let path = membership.trim().strip_prefix("0::").expect("the v2 tree alone");
    assert!(path.contains("/user@1000.service/") && path.ends_with(&id), "{path}");
    let limit = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/pids.max")).expect("its group");
    assert_eq!(limit.trim(), "44");
    case.call(&["delete", "--force", &id]).ok();
    assert!(!std::path::Path::new(&format!("/sys/fs/cgroup{path}")).exists());
}
