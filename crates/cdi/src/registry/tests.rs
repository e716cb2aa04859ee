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
    let spec = crate::file::parse(json.as_bytes(), false).expect("parse the specification");
    assert!(spec.container_edits.env.is_empty() && spec.devices.len() == 2);
    let yaml = NET.replace("    netDevices:\n", "    env:\n    hooks: null\n    netDevices:\n");
    let spec = crate::file::parse(yaml.as_bytes(), true).expect("parse the specification");
    assert_eq!(spec.devices[0].container_edits.net_devices[0].name, "net1");
    assert_eq!(spec.devices[0].container_edits.device_nodes[0].file_mode, Some(0o660));
    let wrong =
        crate::file::parse(NET.replace("name: net1", "name: [1]").as_bytes(), true).expect_err("the value is a list");
    assert!(wrong.contains("line"), "the error contains no position: {wrong}");
}

/// Creates two directories, the second with the higher priority.
fn directories() -> (tempfile::TempDir, PathBuf, PathBuf, Registry) {
    let dir = tempfile::tempdir().expect("create a directory");
    let (low, high) = (dir.path().join("etc"), dir.path().join("run"));
    fs::create_dir(&low).expect("create a directory");
    fs::create_dir(&high).expect("create a directory");
    let registry = Registry::new(vec![low.clone(), high.clone()]);
    (dir, low, high, registry)
}

fn names(list: &[&str]) -> Vec<Name> {
    list.iter().map(|name| Name::parse(name).expect("parse the name")).collect()
}

#[test]
fn edits_of_a_file_are_applied_once_before_those_of_its_devices() {
    let (_dir, low, high, registry) = directories();
    fs::write(low.join("gpu.json"), GPU).expect("write the file");
    fs::write(high.join("net.yaml"), NET).expect("write the file");
    let edits = registry
        .resolve(&names(&["vendor.com/gpu=1", "vendor.com/net=a", "vendor.com/gpu=0"]))
        .expect("resolve the devices");
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
fn changes_of_files_are_detected() {
    let (_dir, low, high, registry) = directories();
    let gpu = names(&["vendor.com/gpu=0"]);
    assert!(matches!(registry.resolve(&gpu), Err(Error::Unknown { .. })));
    fs::write(low.join("gpu.json"), GPU).expect("write the file");
    assert_eq!(registry.resolve(&gpu).expect("resolve the devices").env, ["GPU=yes"]);
    // The file has the same length and may have the same mtime: the change is detected by the inode and its ctime.
    fs::write(low.join("new"), GPU.replace("GPU=yes", "GPU=no!")).expect("write the file");
    fs::rename(low.join("new"), low.join("gpu.json")).expect("rename the file");
    assert_eq!(registry.resolve(&gpu).expect("resolve the devices").env, ["GPU=no!"]);
    fs::write(high.join("other.json"), GPU.replace("GPU=yes", "GPU=run")).expect("write the file");
    assert_eq!(
        registry.resolve(&gpu).expect("resolve the devices").env,
        ["GPU=run"],
        "the later directory has the higher priority"
    );
    fs::remove_file(high.join("other.json")).expect("remove the file");
    assert_eq!(registry.resolve(&gpu).expect("resolve the devices").env, ["GPU=no!"]);
    fs::remove_dir_all(&low).expect("remove the file");
    let unknown = registry.resolve(&gpu).expect_err("the directory was removed").to_string();
    assert!(unknown.contains("vendor.com/gpu=0") && unknown.contains("no file in"), "{unknown}");
}

#[test]
fn a_device_in_two_files_of_one_directory_is_a_conflict() {
    let (_dir, low, _high, registry) = directories();
    fs::write(low.join("a.json"), GPU).expect("write the file");
    fs::write(low.join("b.json"), GPU.replace(r#""name": "1""#, r#""name": "2""#)).expect("write the file");
    let conflict =
        registry.resolve(&names(&["vendor.com/gpu=0"])).expect_err("the device is defined twice").to_string();
    assert!(conflict.contains("a.json and ") && conflict.contains("b.json"), "{conflict}");
    assert!(
        registry.resolve(&names(&["vendor.com/gpu=1"])).is_ok()
            && registry.resolve(&names(&["vendor.com/gpu=2"])).is_ok()
    );
    assert_eq!(registry.problems().keys().collect::<Vec<_>>(), ["vendor.com/gpu=0"]);
}

#[test]
fn an_invalid_file_does_not_affect_other_files() {
    let (_dir, low, _high, registry) = directories();
    fs::write(low.join("gpu.json"), GPU).expect("write the file");
    let broken = [
        ("no-json", "{".to_owned(), "EOF"),
        ("unknown-field", GPU.replace("\"annotations\"", "\"extra\""), "unknown field"),
        ("kind", GPU.replace("vendor.com/gpu", "gpu"), "kind: "),
        ("version", GPU.replace("0.6.0", "9.9.9"), "cdiVersion: "),
        ("too-old", GPU.replace("0.6.0", "0.5.0"), "annotations, which requires 0.6.0"),
        ("device", GPU.replace("\"name\": \"0\"", "\"name\": \"-\""), "devices[0].name: "),
        ("twice", GPU.replace("\"name\": \"0\"", "\"name\": \"1\""), "devices[1].name: "),
        (
            "nothing",
            GPU.replace(
                "\"env\": [\"N=1\"], \"hooks\": [{\"hookName\": \"createContainer\", \"path\": \"/bin/true\"}]",
                "",
            ),
            "has no edits",
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
    for (name, text, message) in &broken {
        let path = low.join(format!("{name}.json"));
        fs::write(&path, text).expect("write the file");
        let problems = registry.problems();
        let problem = problems.get(&path.display().to_string()).unwrap_or_else(|| panic!("{name}: {problems:?}"));
        assert!(problem.contains(message), "{name}: {problem:?} does not contain {message:?}");
        assert!(registry.resolve(&names(&["vendor.com/gpu=0"])).is_ok(), "{name}");
        let unknown = registry.resolve(&names(&["vendor.com/gpu=9"])).expect_err("the device is not known").to_string();
        assert!(unknown.contains(&format!("{name}.json cannot be read")), "{unknown}");
        fs::remove_file(&path).expect("remove the file");
    }
    assert!(registry.problems().is_empty());
}

#[test]
fn bombs_and_irregular_files_are_refused() {
    let (_dir, low, _high, registry) = directories();
    let bomb = (1..40).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1)
    });
    fs::write(low.join("bomb.yaml"), bomb).expect("write the file");
    let deep = "[".repeat(100_000);
    fs::write(low.join("deep.json"), &deep).expect("write the file");
    fs::write(low.join("deep.yaml"), &deep).expect("write the file");
    fs::write(low.join("long.json"), vec![b' '; (8 << 20) + 1]).expect("write the file");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        low.join("pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("create a FIFO");
    fs::create_dir(low.join("directory.json")).expect("create a directory");
    std::os::unix::fs::symlink("/nowhere", low.join("nowhere.json")).expect("create a symlink");
    assert_eq!(registry.problems().len(), 6, "{:?}", registry.problems());
}
