use serde_json::{Value, json};

use super::*;

fn machine() -> Machine {
    Machine {
        kind: "pc-i440fx-10.0".to_owned(),
        qemu: (10, 0),
        kvm: false,
        memory: 256 << 20,
        pluggable: 0,
        plugged: 0,
        cpus: 1,
        cpus_present: 1,
        cpus_max: 1,
        ports: BTreeMap::from([("agent-1".to_owned(), 1)]),
        interfaces: vec![("eth0".to_owned(), [2, 0, 0, 0, 0, 1])],
    }
}

fn description() -> Value {
    let pod = json!({
        "name": { "name": "web", "uid": "", "namespace": "", "attempt": 0 }, "hostname": "", "log_directory": null,
        "dns": null, "ports": [], "labels": {}, "annotations": {}, "cgroup_parent": null, "sysctls": {}, "network": "Pod",
        "ipc": "Pod", "pid": "Container", "privileged": false, "runtime_handler": "vm", "resources": null,
    });
    let container = SavedContainer {
        guest_id: ContainerId::generate().expect("an id"),
        config: ContainerConfig::minimal("app".to_owned()),
        image_id: "sha256:1".to_owned(),
        mounts: vec!["/proc".to_owned()],
    };
    let pod = serde_json::from_value(pod).expect("the configuration of a pod");
    let exited = vec![ContainerId::generate().expect("an id")];
    let description = Description::new("vm".to_owned(), machine(), pod, vec![container], exited);
    serde_json::to_value(description).expect("JSON")
}

fn parse(description: &Value) -> Result<Description, Error> {
    Description::parse(description.to_string().as_bytes())
}

#[test]
fn a_description_is_read_as_it_was_written() {
    let written = description();
    let read = parse(&written).expect("valid");
    assert_eq!(read.machine, machine());
    assert_eq!(serde_json::to_value(read).expect("JSON"), written);
}

#[test]
fn descriptions_that_no_daemon_writes_are_refused() {
    let changes: [(&str, Value); 12] = [
        ("/version", json!(2)),
        ("/agent", json!(agent_api::VERSION + 1)),
        ("/machine/kind", json!("pc-i440fx-10.0,usb=on")),
        ("/machine/kind", json!("pc")),
        ("/machine/pluggable", json!(u64::MAX)),
        ("/machine/plugged", json!(1)),
        ("/machine/cpus_present", json!(2)),
        ("/machine/ports", json!((0..200).map(|number| (number.to_string(), number)).collect::<BTreeMap<_, u32>>())),
        ("/containers", json!([])),
        ("/containers/0/guest_id", json!("../x")),
        ("/containers/0/config/name", json!("")),
        ("/exited", json!(["a".repeat(63)])),
    ];
    for (pointer, value) in changes {
        let mut description = description();
        *description.pointer_mut(pointer).expect(pointer) = value;
        assert_eq!(parse(&description).expect_err(pointer).kind, crate::ErrorKind::InvalidArgument, "{pointer}");
    }
    let mut twice = description();
    twice["exited"][0] = twice["containers"][0]["guest_id"].clone();
    assert!(parse(&twice).is_err());
    assert!(Description::parse(b"{").is_err());
}

#[test]
fn a_checkpoint_is_written_to_an_empty_directory_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let output = Output::open(path).expect("empty");
    output.create("one").expect("a file");
    assert!(output.create("one").is_err() && Output::open(path).is_err());
    std::fs::write(output.path("two"), "").expect("a file");
    output.complete("three", b"text").expect("a file");
    let source = Source::open(path).expect("a directory");
    assert_eq!(source.read("three", 4).expect("read").as_deref(), Some(&b"text"[..]));
    assert_eq!(source.read("three", 3).expect("read"), None);
    output.remove_all().expect("removed");
    assert_eq!(std::fs::read_dir(path).expect("a directory").count(), 0);
    std::os::unix::fs::symlink("/etc/passwd", path.join("link")).expect("a link");
    assert!(source.file("link").is_err() && source.file("missing").is_err() && source.file(".").is_err());
    let link = directory.path().with_extension("link");
    std::os::unix::fs::symlink(path, &link).expect("a link");
    assert!(Source::open(&link).is_err() && Output::open(std::path::Path::new("relative")).is_err());
    std::fs::remove_file(link).expect("removed");
}
