//! `mounts` of file systems: overlays of host directories, file systems on host devices, and the mode and content of a
//! tmpfs.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
};

use oci_tests::{Bundle, Case, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    overlay_of_directories,
    overlay_of_directories_in_a_user_namespace,
    overlay_for_hooks,
    overlay_of_many_layers,
    ext4_of_a_device,
    ext4_of_a_read_only_device,
    missing_device,
    read_only_dev_is_populated_first,
    read_only_tmpfs_is_populated_first,
    recursive_read_only_tmpfs,
    mode_of_a_tmpfs,
);

/// Returns the options of an overlay of directories in the bundle, as engines write them for a volume that must not be
/// changed.
fn overlay(bundle: &Bundle) -> Vec<String> {
    for (name, file) in [("lower", "below"), ("upper", "above"), ("work", "")] {
        let path = bundle.directory.join(name);
        fs::create_dir_all(&path).expect("create a directory");
        if !file.is_empty() {
            fs::write(path.join(file), format!("{file}\n")).expect("write a file");
        }
    }
    let path = |name: &str| bundle.directory.join(name).to_str().expect("the path is ASCII").to_owned();
    vec![
        format!("lowerdir={}", path("lower")),
        format!("upperdir={}", path("upper")),
        format!("workdir={}", path("work")),
        "private".to_owned(),
    ]
}

fn mount(bundle: &mut Bundle, destination: &str, kind: &str, source: &str, options: &[String]) {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    bundle.mount(destination, kind, source, &options);
}

fn overlay_of_directories(case: &Case) {
    let mut bundle = case.script("cat /data/below /data/above; echo changed > /data/below");
    let options = overlay(&bundle);
    mount(&mut bundle, "/data", "overlay", "overlay", &options);
    let (lower, upper) = (bundle.directory.join("lower/below"), bundle.directory.join("upper/below"));
    assert_eq!(case.container(bundle).run().ok(), "below\nabove\n");
    assert_eq!(fs::read_to_string(lower).expect("the file exists"), "below\n");
    assert_eq!(fs::read_to_string(upper).expect("the file was copied up"), "changed\n");
}

fn overlay_of_directories_in_a_user_namespace(case: &Case) {
    let mut bundle =
        case.script("cat /data/below; echo changed > /data/below && stat -c %u /data/below; rm /data/above");
    let options = overlay(&bundle);
    // The root user of the container, which mounts the overlay, needs search permission on the path to the directories.
    for path in [case.directory(), bundle.directory.as_path(), &bundle.directory.join("root")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("change the mode");
    }
    for path in ["lower", "lower/below", "upper", "upper/above", "work", "root"] {
        chown(bundle.directory.join(path), Some(100_000), Some(100_000)).expect("change the owner");
    }
    mount(&mut bundle, "/data", "overlay", "overlay", &options);
    bundle.namespace("user", None);
    for field in ["uidMappings", "gidMappings"] {
        bundle.spec["linux"][field] = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
    }
    let upper = bundle.directory.join("upper/above");
    assert_eq!(case.container(bundle).run().ok(), "below\n0\n");
    assert!(!upper.exists(), "the file must be removed from the upper directory");
}

fn overlay_for_hooks(case: &Case) {
    let mut bundle = case.script("cat /data/below");
    let options = overlay(&bundle);
    mount(&mut bundle, "/data", "overlay", "overlay", &options);
    bundle.spec["hooks"] = json!({ "createContainer": [{ "path": "/bin/true" }] });
    assert_eq!(case.container(bundle).run().ok(), "below\n");
}

/// The list of lower directories is longer than the longest string that fsconfig(2) accepts.
fn overlay_of_many_layers(case: &Case) {
    let mut bundle = case.script("cat /data/*; touch /data/new 2>&1; grep ' /data ' /proc/self/mountinfo");
    let mut layers = Vec::new();
    for number in 0..4 {
        let layer = bundle.directory.join(format!("{}{number}", "l".repeat(100)));
        fs::create_dir(&layer).expect("create a directory");
        fs::write(layer.join(number.to_string()), format!("{number}\n")).expect("write a file");
        layers.push(layer.to_str().expect("the path is ASCII").to_owned());
    }
    let options = [format!("lowerdir={}", layers.join(":")), "ro".to_owned(), "nodev".to_owned()];
    mount(&mut bundle, "/data", "overlay", "overlay", &options);
    let text = case.container(bundle).run().ok().to_owned();
    assert!(text.starts_with("0\n1\n2\n3\n") && text.contains("Read-only"), "{text}");
    let line = Mount::parse(&text);
    assert!(line.iter().any(|mount| mount.has("ro") && mount.has("nodev")), "{text}");
}

/// Calls `body` with the path of a loop device that contains an ext4. Detaches the device afterwards.
fn with_device(case: &Case, flags: &[&str], body: impl FnOnce(&str)) {
    let image = case.file("image", "");
    fs::File::options()
        .write(true)
        .open(&image)
        .and_then(|file| file.set_len(4 << 20))
        .expect("set the length of the image");
    case.program("mkfs.ext4", &["-q", &image]).ok();
    let device = case.program("losetup", &[flags, &["--find", "--show", &image]].concat()).ok().trim().to_owned();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&device)));
    case.program("losetup", &["--detach", &device]).ok();
    if let Err(failure) = result {
        std::panic::resume_unwind(failure);
    }
}

fn ext4_of_a_device(case: &Case) {
    with_device(case, &[], |device| {
        // The cgroup denies the device to the container, but the runtime must be able to open it.
        let text = case.output("ls /data", |bundle| {
            bundle.mount("/data", "ext4", device, &[]);
            bundle.spec["hooks"] = json!({ "createContainer": [{ "path": "/bin/true" }] });
        });
        assert_eq!(text, "lost+found\n");
        let text = case.output("ls /data; echo written > /data/file; cat /data/file", |bundle| {
            bundle.mount("/data", "ext4", device, &["nosuid", "data=ordered"]);
        });
        assert_eq!(text, "lost+found\nwritten\n");
        let text = case.output("cat /data/file; touch /data/new 2>&1; true", |bundle| {
            bundle.mount("/data", "ext4", device, &["ro"]);
        });
        assert!(text.starts_with("written\n") && text.contains("Read-only"), "{text}");
    });
}

fn ext4_of_a_read_only_device(case: &Case) {
    with_device(case, &["--read-only"], |device| {
        let text = case.output("ls /data", |bundle| {
            bundle.mount("/data", "ext4", device, &["ro"]);
        });
        assert_eq!(text, "lost+found\n");
    });
}

fn missing_device(case: &Case) {
    case.assert_refused(&["no such file", "/dev/nowhere", "/data"], |bundle| {
        bundle.mount("/data", "ext4", "/dev/nowhere", &[]);
    });
}

fn read_only_dev_is_populated_first(case: &Case) {
    let text = case.output("ls -d /dev/pts/ptmx /dev/null /dev/stdin; touch /dev/new 2>&1; true", |bundle| {
        let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts");
        let dev = mounts.iter_mut().find(|mount| mount["destination"] == "/dev").expect("/dev");
        dev["options"] = json!(["nosuid", "strictatime", "mode=755", "size=65536k", "ro"]);
    });
    assert!(text.starts_with("/dev/null\n/dev/pts/ptmx\n/dev/stdin\n") && text.contains("Read-only"), "{text}");
}

fn read_only_tmpfs_is_populated_first(case: &Case) {
    let text = case.output("cat /mnt/below/file; touch /mnt/new 2>&1; true", |bundle| {
        let source = bundle.directory.join("source");
        fs::create_dir(&source).expect("create a directory");
        fs::write(source.join("file"), "of the host\n").expect("write a file");
        bundle.mount("/mnt", "tmpfs", "tmpfs", &["ro"]);
        bundle.mount("/mnt/below", "bind", source.to_str().expect("the path is ASCII"), &["bind"]);
    });
    assert!(text.starts_with("of the host\n") && text.contains("Read-only"), "{text}");
}

fn recursive_read_only_tmpfs(case: &Case) {
    let text = case.output("touch /mnt/new 2>&1; true", |bundle| {
        bundle.mount("/mnt", "tmpfs", "tmpfs", &["rro"]);
    });
    assert!(text.contains("Read-only"), "{text}");
}

fn mode_of_a_tmpfs(case: &Case) {
    let text = case.output("stat -c %a /tmp /mnt /home /new /keep", |bundle| {
        for (path, mode) in [("/mnt", 0o750), ("/home", 0o711), ("/keep", 0o2755)] {
            fs::create_dir_all(bundle.path(path)).expect("create a directory");
            fs::set_permissions(bundle.path(path), fs::Permissions::from_mode(mode)).expect("change the mode");
        }
        for path in ["/tmp", "/mnt", "/new"] {
            bundle.mount(path, "tmpfs", "tmpfs", &["nosuid"]);
        }
        bundle.mount("/home", "tmpfs", "tmpfs", &["mode=700"]);
        bundle.mount("/keep", "tmpfs", "tmpfs", &["tmpcopyup"]);
    });
    assert_eq!(text, "1777\n750\n700\n1777\n2755\n");
}
