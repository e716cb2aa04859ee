//! A pod on a kernel with SELinux. Runs in a separate process, because the cases of other modules reap all children.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::json;

use crate::{
    node::{Node, ok},
    selinux::LABEL,
};

/// Returns the SELinux label of a file; `None` if it is not labelled.
fn label_of(path: &Path) -> Option<String> {
    let mut label = [0; 256];
    let length = rustix::fs::lgetxattr(path, "security.selinux", &mut label[..]).ok()?;
    Some(String::from_utf8_lossy(&label[..length]).trim_end_matches('\0').to_owned())
}

#[test]
fn files_of_a_pod_have_its_label() {
    // The loaded policy has no types for containers.
    fs::write("/etc/selinux/default/contexts/lxc_contexts", "file = \"system_u:object_r:tmpfs_t:s0\"\n")
        .expect("written");
    let files = "unconfined_u:object_r:tmpfs_t:s0:c1,c2";
    let node = Node::start("selinux", 0);
    let volume = node.directory().join("volume");
    fs::create_dir_all(volume.join("in")).expect("a directory");
    fs::write(volume.join("in/file"), "mine").expect("written");
    symlink("/etc/passwd", volume.join("link")).expect("a link");
    let passwd = label_of(Path::new("/etc/passwd"));

    let node_network = json!({"namespace_options": {"network": 2}});
    let pod = json!({
        "metadata": {"name": "p", "uid": "p", "namespace": "d"},
        "log_directory": node.directory(),
        "linux": {"security_context": node_network},
    });
    let container = |name: &str, host: &Path| {
        json!({
            "metadata": {"name": name},
            "image": {"image": "demo:1"},
            "command": ["sh", "-c", "cat /proc/self/attr/current > /own; sleep 1000"],
            "log_path": format!("{name}.log"),
            "mounts": [{"host_path": host, "container_path": "/volume", "selinux_relabel": true}],
            "linux": {"security_context": {"namespace_options": {"network": 2}, "selinux_options": {
                "user": "unconfined_u", "role": "unconfined_r", "type": "unconfined_t", "level": "s0:c1,c2",
            }}},
        })
    };
    let pod_file = node.file("pod.json", &pod);
    let pod = ok(node.crictl(&["runp", &pod_file]));
    let create = |name: &str, host: &Path| {
        let file = node.file(&format!("{name}.json"), &container(name, host));
        node.crictl(&["create", &pod, &file, &pod_file])
    };
    let id = ok(create("c", &volume));
    ok(node.crictl(&["start", &id]));
    let inside = |script: &str| ok(node.crictl(&["exec", "-s", &id, "sh", "-c", script]));

    assert_eq!(inside("cat /own /proc/self/attr/current").replace('\0', ""), LABEL.repeat(2));
    for point in ["/", "/dev"] {
        let mount = inside(&format!("grep ' {point} ' /proc/self/mounts"));
        assert!(
            mount.contains(&format!("context={files}")) || mount.contains(&format!("context=\"{files}\"")),
            "{mount}"
        );
    }
    let inspect: serde_json::Value = serde_json::from_str(&ok(node.crictl(&["inspect", &id]))).expect("JSON");
    let shm = format!("/proc/{}/root/dev/shm", inspect["info"]["pid"]);
    assert_eq!(label_of(Path::new(&shm)).as_deref(), Some(files));
    inside("echo mine > /dev/shm/file");
    assert_eq!(label_of(&volume).as_deref(), Some(files));
    for inner in ["in", "in/file", "link"] {
        assert_eq!(label_of(&volume.join(inner)).as_deref(), Some(files), "{inner}");
    }
    assert_eq!(label_of(Path::new("/etc/passwd")), passwd, "links are not followed");
    // The files of the pod are on a tmpfs that is mounted only in its containers.
    let hosts = format!("/proc/{}/root/etc/hosts", inspect["info"]["pid"]);
    for path in [hosts, format!("/run/selinux/container/{id}/stdout")] {
        assert_eq!(label_of(Path::new(&path)).as_deref(), Some(files), "{path}");
    }
    let refused = create("refused", Path::new("/etc"));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("/etc belongs to the node"), "{error}");
}
