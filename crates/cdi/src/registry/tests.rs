use std::fs;

use super::*;

const GPU: &str = r#"{"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "annotations": {"who": "vendor"},
    "containerEdits": {"env": ["GPU=yes"], "mounts": [{"hostPath": "/lib/gpu", "containerPath": "/lib/gpu", "options": ["ro"]}]},
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null", "permissions": "rw"}]}},
        {"name": "1", "containerEdits": {"env": ["N=1"], "hooks": [{"hookName": "createContainer", "path": "/bin/true"}]}}]}"#;

const NET: &str = r#"
cdiVersion: "1.1.0"
kind: vendor.com/net
devices:
- name: a
  containerEdits:
    netDevices:
    - hostInterfaceName: eth7
      name: net1
    additionalGids: [0, 44]
    intelRdt:
      closID: guaranteed
      schemata: ["L3:0=f"]
    deviceNodes:
    - path: /dev/x
      type: c
      major: 1
      minor: 3
      fileMode: 0660
"#;

#[test]
fn a_field_without_a_value_is_absent() {
    let json = GPU.replace(r#""env": ["GPU=yes"]"#, r#""env": null, "hooks": null"#);
    let spec = crate::file::parse(json.as_bytes(), false).expect("valid");
    assert!(spec.container_edits.env.is_empty() && spec.devices.len() == 2);
    let yaml = NET.replace("    netDevices:\n", "    env:\n    hooks: null\n    netDevices:\n");
    let spec = crate::file::parse(yaml.as_bytes(), true).expect("valid");
    assert_eq!(spec.devices[0].container_edits.net_devices[0].name, "net1");
    assert_eq!(spec.devices[0].container_edits.device_nodes[0].file_mode, Some(0o660));
    let wrong = crate::file::parse(NET.replace("name: net1", "name: [1]").as_bytes(), true).expect_err("a list");
    assert!(wrong.contains("line"), "it says where: {wrong}");
}

/// Two directories, the second with the higher priority.
fn directories() -> (tempfile::TempDir, PathBuf, PathBuf, Registry) {
    let dir = tempfile::tempdir().expect("directory");
    let (low, high) = (dir.path().join("etc"), dir.path().join("run"));
    fs::create_dir(&low).expect("directory");
    fs::create_dir(&high).expect("directory");
    let registry = Registry::new(vec![low.clone(), high.clone()]);
    (dir, low, high, registry)
}

fn names(list: &[&str]) -> Vec<Name> {
    list.iter().map(|name| Name::parse(name).expect("a name")).collect()
}

#[test]
fn a_files_own_edits_come_once_before_those_of_its_devices() {
    let (_dir, low, high, registry) = directories();
    fs::write(low.join("gpu.json"), GPU).expect("write");
    fs::write(high.join("net.yaml"), NET).expect("write");
    let edits = registry.resolve(&names(&["vendor.com/gpu=1", "vendor.com/net=a", "vendor.com/gpu=0"])).expect("known");
    assert_eq!(edits.env, ["GPU=yes", "N=1"]);
    assert_eq!((edits.mounts.len(), edits.hooks.len(), edits.device_nodes.len()), (1, 1, 2));
    assert_eq!(edits.device_nodes[0].file_mode, Some(0o660), "octal, as in Go's YAML");
    assert_eq!(edits.additional_gids, [44]);
    assert_eq!(edits.net_devices[0].name, "net1");
    assert_eq!(edits.intel_rdt.map(|rdt| rdt.to_oci().schemata), Some(vec!["L3:0=f".to_owned()]));
    assert_eq!(edits.mounts[0].to_oci().options, ["rbind", "ro"]);
    assert_eq!(registry.devices(), ["vendor.com/gpu=0", "vendor.com/gpu=1", "vendor.com/net=a"]);
    assert!(registry.problems().is_empty());
}

#[test]
fn files_may_come_go_and_change_at_any_time() {
    let (_dir, low, high, registry) = directories();
    let gpu = names(&["vendor.com/gpu=0"]);
    assert!(matches!(registry.resolve(&gpu), Err(Error::Unknown { .. })));
    fs::write(low.join("gpu.json"), GPU).expect("write");
    assert_eq!(registry.resolve(&gpu).expect("known").env, ["GPU=yes"]);
    // The same length, within the same tick of the clock: the inode's own time of change tells.
    fs::write(low.join("new"), GPU.replace("GPU=yes", "GPU=no!")).expect("write");
    fs::rename(low.join("new"), low.join("gpu.json")).expect("rename");
    assert_eq!(registry.resolve(&gpu).expect("known").env, ["GPU=no!"]);
    fs::write(high.join("other.json"), GPU.replace("GPU=yes", "GPU=run")).expect("write");
    assert_eq!(registry.resolve(&gpu).expect("known").env, ["GPU=run"], "the later directory wins");
    fs::remove_file(high.join("other.json")).expect("remove");
    assert_eq!(registry.resolve(&gpu).expect("known").env, ["GPU=no!"]);
    fs::remove_dir_all(&low).expect("remove");
    let gone = registry.resolve(&gpu).expect_err("gone").to_string();
    assert!(gone.contains("vendor.com/gpu=0") && gone.contains("no file in"), "{gone}");
}

#[test]
fn two_files_of_one_directory_are_a_conflict_of_that_device_alone() {
    let (_dir, low, _high, registry) = directories();
    fs::write(low.join("a.json"), GPU).expect("write");
    fs::write(low.join("b.json"), GPU.replace(r#""name": "1""#, r#""name": "2""#)).expect("write");
    let conflict = registry.resolve(&names(&["vendor.com/gpu=0"])).expect_err("twice").to_string();
    assert!(conflict.contains("a.json and ") && conflict.contains("b.json"), "{conflict}");
    assert!(
        registry.resolve(&names(&["vendor.com/gpu=1"])).is_ok()
            && registry.resolve(&names(&["vendor.com/gpu=2"])).is_ok()
    );
    assert_eq!(registry.problems().keys().collect::<Vec<_>>(), ["vendor.com/gpu=0"]);
}

#[test]
fn a_broken_file_breaks_nothing_else() {
    let (_dir, low, _high, registry) = directories();
    fs::write(low.join("gpu.json"), GPU).expect("write");
    let broken = [
        ("no-json", "{".to_owned(), "EOF"),
        ("unknown-field", GPU.replace("\"annotations\"", "\"extra\""), "unknown field"),
        ("kind", GPU.replace("vendor.com/gpu", "gpu"), "kind: "),
        ("version", GPU.replace("0.6.0", "9.9.9"), "cdiVersion: "),
        ("too-old", GPU.replace("0.6.0", "0.5.0"), "annotations, which came with 0.6.0"),
        ("device", GPU.replace("\"name\": \"0\"", "\"name\": \"-\""), "devices[0].name: "),
        ("twice", GPU.replace("\"name\": \"0\"", "\"name\": \"1\""), "devices[1].name: "),
        (
            "nothing",
            GPU.replace(
                "\"env\": [\"N=1\"], \"hooks\": [{\"hookName\": \"createContainer\", \"path\": \"/bin/true\"}]",
                "",
            ),
            "changes nothing",
        ),
        ("env", GPU.replace("N=1", "=1"), "devices[1].containerEdits.env[0]: "),
        ("hook", GPU.replace("createContainer", "atLunch"), "hooks[0].hookName: "),
        ("relative", GPU.replace("\"/bin/true\"", "\"true\""), "hooks[0].path: "),
        ("permissions", GPU.replace("\"rw\"", "\"rwx\""), "deviceNodes[0].permissions: "),
        (
            "mount",
            GPU.replace("\"/lib/gpu\", \"containerPath\"", "\"lib\", \"containerPath\""),
            "containerEdits.mounts[0].hostPath: ",
        ),
    ];
    for (name, text, want) in &broken {
        let path = low.join(format!("{name}.json"));
        fs::write(&path, text).expect("write");
        let problems = registry.problems();
        let told = problems.get(&path.display().to_string()).unwrap_or_else(|| panic!("{name}: {problems:?}"));
        assert!(told.contains(want), "{name}: {told:?} lacks {want:?}");
        assert!(registry.resolve(&names(&["vendor.com/gpu=0"])).is_ok(), "{name}");
        let unknown = registry.resolve(&names(&["vendor.com/gpu=9"])).expect_err("unknown").to_string();
        assert!(unknown.contains(&format!("{name}.json cannot be read")), "{unknown}");
        fs::remove_file(&path).expect("remove");
    }
    assert!(registry.problems().is_empty());
}

#[test]
fn bombs_and_odd_files_are_refused() {
    let (_dir, low, _high, registry) = directories();
    let bomb = (1..40).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1)
    });
    fs::write(low.join("bomb.yaml"), bomb).expect("write");
    let deep = "[".repeat(100_000);
    fs::write(low.join("deep.json"), &deep).expect("write");
    fs::write(low.join("deep.yaml"), &deep).expect("write");
    fs::write(low.join("long.json"), vec![b' '; (8 << 20) + 1]).expect("write");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        low.join("pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("fifo");
    fs::create_dir(low.join("directory.json")).expect("directory");
    std::os::unix::fs::symlink("/nowhere", low.join("nowhere.json")).expect("symlink");
    assert_eq!(registry.problems().len(), 6, "{:?}", registry.problems());
}
