//! `linux.namespaces`: new ones, those of the runtime, and those joined by path.

use std::fs;

use oci_tests::{Case, each_runtime};
use serde_json::json;

each_runtime!(
    new_namespaces,
    shared_namespaces,
    joined_by_path,
    joined_pid_namespace,
    joined_user_namespace,
    path_of_another_type,
    missing_path,
    type_listed_twice,
    hostname,
    domainname,
    hostname_without_a_namespace,
    loopback_is_up,
    time_offsets,
    time_offsets_without_a_namespace,
    user_namespace,
    user_namespace_of_two_ranges,
    user_namespace_owns_the_others,
    user_namespace_without_mappings,
    exec_in_a_user_namespace,
    sysctl,
    sysctl_of_the_host_is_refused,
    sysctl_of_hostname_and_domainname,
    network_device_is_moved,
);

const KINDS: [(&str, &str); 6] =
    [("pid", "pid"), ("network", "net"), ("ipc", "ipc"), ("uts", "uts"), ("mount", "mnt"), ("cgroup", "cgroup")];

/// Returns the id of a namespace of this process.
fn host_namespace(link: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{link}"))
        .expect("read the link of the namespace")
        .to_str()
        .expect("the path is ASCII")
        .to_owned()
}

fn new_namespaces(case: &Case) {
    let text = case.output("for n in pid net ipc uts mnt cgroup; do readlink /proc/self/ns/$n; done", |_| {});
    assert_eq!(text.lines().count(), 6);
    for ((_, link), line) in KINDS.iter().zip(text.lines()) {
        assert_ne!(line, host_namespace(link), "{link} must be a new namespace");
    }
}

fn shared_namespaces(case: &Case) {
    for (kind, link) in KINDS.iter().filter(|(kind, _)| !["mount", "pid"].contains(kind)) {
        let text = case.output(&format!("readlink /proc/self/ns/{link}"), |bundle| {
            bundle.without_namespace(kind);
            if *kind == "uts" {
                bundle.spec.as_object_mut().expect("an object").remove("hostname");
            }
        });
        assert_eq!(text.trim(), host_namespace(link), "{kind} must be the namespace of the runtime");
    }
}

fn joined_by_path(case: &Case) {
    let holder = case.container(case.script("sleep 1000"));
    holder.create_and_start();
    let pid = holder.pid();
    for (kind, link) in KINDS.iter().filter(|(kind, _)| ["network", "ipc", "uts"].contains(kind)) {
        let path = format!("/proc/{pid}/ns/{link}");
        let text = case.output(&format!("readlink /proc/self/ns/{link}"), |bundle| {
            bundle.namespace(kind, Some(&path));
            bundle.spec.as_object_mut().expect("an object").remove("hostname");
        });
        assert_eq!(
            text.trim(),
            fs::read_link(&path).expect("the process is running").to_str().expect("the path is ASCII"),
            "{kind}"
        );
    }
    holder.remove();
}

fn joined_pid_namespace(case: &Case) {
    let holder = case.container(case.script("sleep 1000"));
    holder.create_and_start();
    let path = format!("/proc/{}/ns/pid", holder.pid());
    let text = case.output("readlink /proc/self/ns/pid; ps -o pid,args", |bundle| {
        bundle.namespace("pid", Some(&path));
    });
    assert!(
        text.starts_with(fs::read_link(&path).expect("the process is running").to_str().expect("the path is ASCII")),
        "{text}"
    );
    assert!(text.contains("sleep 1000"), "the first process must be the holder's: {text}");
    holder.remove();
}

fn with_mappings(bundle: &mut oci_tests::Bundle, ranges: &[(u32, u32, u32)]) {
    bundle.namespace("user", None);
    let list: Vec<_> = ranges
        .iter()
        .map(|(inside, host, size)| json!({ "containerID": inside, "hostID": host, "size": size }))
        .collect();
    bundle.spec["linux"]["uidMappings"] = json!(list);
    bundle.spec["linux"]["gidMappings"] = json!(list);
    // The root user of the new namespace needs search permission on the path to the bundle.
    let directory = bundle.directory.clone();
    for path in directory.ancestors().take(2) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("change the mode");
    }
}

fn joined_user_namespace(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    with_mappings(&mut bundle, &[(0, 0, 65536)]);
    let holder = case.container(bundle);
    holder.create_and_start();
    let path = format!("/proc/{}/ns/user", holder.pid());
    let text = case.output("readlink /proc/self/ns/user", |bundle| {
        bundle.namespace("user", Some(&path));
    });
    assert_eq!(text.trim(), fs::read_link(&path).expect("the process is running").to_str().expect("the path is ASCII"));
    holder.remove();
}

fn path_of_another_type(case: &Case) {
    case.assert_refused(&["/proc/self/ns/ipc", "invalid argument", "network"], |bundle| {
        bundle.namespace("network", Some("/proc/self/ns/ipc"));
    });
}

fn missing_path(case: &Case) {
    case.assert_refused(&["/nowhere/at/all"], |bundle| {
        bundle.namespace("network", Some("/nowhere/at/all"));
    });
}

fn type_listed_twice(case: &Case) {
    case.assert_refused(&["namespace", "duplicated ns"], |bundle| {
        bundle.spec["linux"]["namespaces"].as_array_mut().expect("namespaces").push(json!({ "type": "ipc" }));
    });
}

fn hostname(case: &Case) {
    assert_eq!(case.output("hostname", |bundle| bundle.spec["hostname"] = json!("another")), "another\n");
}

fn domainname(case: &Case) {
    let text =
        case.output("cat /proc/sys/kernel/domainname", |bundle| bundle.spec["domainname"] = json!("example.org"));
    assert_eq!(text, "example.org\n");
}

fn hostname_without_a_namespace(case: &Case) {
    let before = fs::read_to_string("/proc/sys/kernel/hostname").expect("read a file of /proc");
    case.assert_refused(&["hostname", "uts"], |bundle| {
        bundle.without_namespace("uts");
        bundle.spec["hostname"] = json!("taken-over");
    });
    assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").expect("read a file of /proc"), before);
}

fn loopback_is_up(case: &Case) {
    assert!(case.output("ip link show lo", |_| {}).contains("LOOPBACK,UP"));
}

fn time_offsets(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "clock"]);
        bundle.namespace("time", None);
        bundle.spec["linux"]["timeOffsets"] =
            json!({ "monotonic": { "secs": 1_000_000, "nanosecs": 0 }, "boottime": { "secs": 2_000_000, "nanosecs": 5 } });
    });
    let clocks: Vec<i64> = text.split_whitespace().map(|word| word.parse().expect("seconds")).collect();
    assert!(clocks[0] >= 1_000_000 && clocks[1] >= 2_000_000, "{text}");
}

fn time_offsets_without_a_namespace(case: &Case) {
    case.assert_refused(&["time"], |bundle| {
        bundle.spec["linux"]["timeOffsets"] = json!({ "monotonic": { "secs": 1, "nanosecs": 0 } });
    });
}

fn user_namespace(case: &Case) {
    let text = case.output("id -u; cat /proc/self/uid_map /proc/self/gid_map; stat -c %u /bin", |bundle| {
        with_mappings(bundle, &[(0, 100_000, 65536)]);
    });
    assert_eq!(
        text.split_whitespace().collect::<Vec<_>>(),
        ["0", "0", "100000", "65536", "0", "100000", "65536", "65534"],
        "the owner of the root file system is not mapped"
    );
}

fn user_namespace_of_two_ranges(case: &Case) {
    let text = case.output("id -u; cat /proc/self/uid_map", |bundle| {
        with_mappings(bundle, &[(0, 100_000, 1000), (1000, 200_000, 500)]);
        bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    });
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["1000", "0", "100000", "1000", "1000", "200000", "500"]);
}

fn user_namespace_owns_the_others(case: &Case) {
    // The root user of the user namespace may configure the network and UTS namespaces that it owns.
    let text = case.output("hostname mine && hostname && ip link set lo down && ip link show lo", |bundle| {
        with_mappings(bundle, &[(0, 100_000, 65536)]);
        bundle.capabilities(&["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    });
    assert!(text.starts_with("mine\n") && !text.contains("LOOPBACK,UP"), "{text}");
}

fn user_namespace_without_mappings(case: &Case) {
    case.assert_refused(&["mapping", "user namespace"], |bundle| {
        bundle.namespace("user", None);
    });
}

fn exec_in_a_user_namespace(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    with_mappings(&mut bundle, &[(0, 100_000, 65536)]);
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec_script("id -u; readlink /proc/self/ns/user").lines().next(), Some("0"));
    let link = fs::read_link(format!("/proc/{}/ns/user", container.pid())).expect("the process is running");
    assert_eq!(container.exec_script("readlink /proc/self/ns/user").trim(), link.to_str().expect("the path is ASCII"));
    container.remove();
}

fn sysctl(case: &Case) {
    let text = case.output(
        "cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmni /proc/sys/fs/mqueue/msg_max",
        |bundle| {
            bundle.spec["linux"]["sysctl"] =
                json!({ "net.ipv4.ip_forward": "1", "kernel.shmmni": "1234", "fs.mqueue.msg_max": "17" });
        },
    );
    assert_eq!(text, "1\n1234\n17\n");
}

fn sysctl_of_the_host_is_refused(case: &Case) {
    let before = fs::read_to_string("/proc/sys/vm/swappiness").expect("read a file of /proc");
    case.assert_refused(&["vm.swappiness"], |bundle| bundle.spec["linux"]["sysctl"] = json!({ "vm.swappiness": "11" }));
    case.assert_refused(&["net.ipv4.ip_forward", "network"], |bundle| {
        bundle.without_namespace("network");
        bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    });
    assert_eq!(fs::read_to_string("/proc/sys/vm/swappiness").expect("read a file of /proc"), before);
}

fn sysctl_of_hostname_and_domainname(case: &Case) {
    for key in ["kernel.hostname", "kernel/hostname"] {
        case.assert_refused(&["hostname"], |bundle| bundle.spec["linux"]["sysctl"] = json!({ key: "other" }));
    }
    let text = case.output("cat /proc/sys/kernel/domainname", |bundle| {
        bundle.spec["linux"]["sysctl"] = json!({ "kernel.domainname": "inside" });
    });
    assert_eq!(text, "inside\n");
}

fn network_device_is_moved(case: &Case) {
    // The runtime is called in a new network namespace, so that no link is created on the machine.
    let mut bundle = case.script("ip addr show dev inside; ls /sys/class/net");
    bundle.spec["linux"]["netDevices"] = json!({ "outside": { "name": "inside" } });
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII");
    let run = case.command(&["run", "--bundle", directory, &container.id]);
    let call: Vec<&str> = std::iter::once(run.get_program())
        .chain(run.get_args())
        .map(|word| word.to_str().expect("the path is ASCII"))
        .collect();
    let script = r#"ip link add outside type veth peer name other && ip addr add 192.0.2.7/24 dev outside && ip link set outside up && "$@""#;
    let outcome = case.program("unshare", &[&["--net", "sh", "-c", script, "sh"], call.as_slice()].concat());
    assert!(outcome.ok().contains("192.0.2.7/24"), "{outcome:?}");
}
