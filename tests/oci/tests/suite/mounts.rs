//! `mounts`: options and propagation, checked in mountinfo, and destinations, sources and masks.

use std::fs;

use oci_tests::{Bundle, Case, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    flags_of_tmpfs,
    flags_are_cleared_by_their_opposites,
    data_of_tmpfs,
    order_is_kept,
    bind_of_a_directory,
    bind_of_a_file,
    bind_by_option_only,
    bind_is_remounted_read_only,
    bind_not_recursive,
    bind_recursive,
    recursive_read_only,
    recursive_attributes,
    propagation,
    host_mount_reaches_a_slave,
    destination_is_created,
    destination_through_a_symlink_stays_inside,
    destination_relative,
    missing_source,
    unknown_filesystem,
    copy_up,
    idmapped_bind,
    idmapped_recursive,
    cgroup_read_only,
    proc_and_sys_are_usable,
    host_mounts_are_not_visible,
    rootfs_propagation,
    readonly_root,
    masked_and_readonly_paths,
    missing_masked_paths_are_ignored,
);

/// Returns the mounts of a container whose bundle is changed first.
#[track_caller]
fn mounts(case: &Case, change: impl FnOnce(&mut Bundle)) -> Vec<Mount> {
    Mount::parse(&case.output("cat /proc/self/mountinfo", change))
}

#[track_caller]
fn at<'a>(mounts: &'a [Mount], path: &str) -> &'a Mount {
    mounts.iter().rfind(|mount| mount.mount_point == path).unwrap_or_else(|| panic!("no mount on {path}: {mounts:?}"))
}

fn flags_of_tmpfs(case: &Case) {
    let table = [
        ("ro", "ro"),
        ("nosuid", "nosuid"),
        ("nodev", "nodev"),
        ("noexec", "noexec"),
        ("noatime", "noatime"),
        ("nodiratime", "nodiratime"),
        ("relatime", "relatime"),
        ("sync", "sync"),
        ("dirsync", "dirsync"),
        ("strictatime", "rw"),
        ("rw", "rw"),
    ];
    let all = mounts(case, |bundle| {
        for (number, (option, _)) in table.iter().enumerate() {
            bundle.mount(&format!("/mnt/{number}"), "tmpfs", "tmpfs", &[option]);
        }
    });
    for (number, (option, shown)) in table.iter().enumerate() {
        let mount = at(&all, &format!("/mnt/{number}"));
        assert!(mount.has(shown), "{option}: {mount:?}");
    }
    assert!(!at(&all, "/mnt/9").has("relatime"), "strictatime");
}

fn flags_are_cleared_by_their_opposites(case: &Case) {
    let all = mounts(case, |bundle| {
        bundle.mount("/mnt/a", "tmpfs", "tmpfs", &["ro", "nosuid", "nodev", "noexec", "rw", "suid", "dev", "exec"]);
        bundle.mount("/mnt/b", "tmpfs", "tmpfs", &["defaults"]);
    });
    for (path, flag) in
        [("/mnt/a", "ro"), ("/mnt/a", "nosuid"), ("/mnt/a", "nodev"), ("/mnt/a", "noexec"), ("/mnt/b", "ro")]
    {
        assert!(!at(&all, path).has(flag), "{path} {flag}");
    }
}

fn data_of_tmpfs(case: &Case) {
    let text = case.output("stat -c %a-%u /mnt; df -k /mnt | tail -n 1", |bundle| {
        bundle.mount("/mnt", "tmpfs", "tmpfs", &["nosuid", "size=64k", "mode=0750", "uid=7"]);
    });
    assert!(text.starts_with("750-7\n") && text.contains(" 64 "), "{text}");
}

fn order_is_kept(case: &Case) {
    let text = case.output("ls /mnt; ls /mnt/below", |bundle| {
        let source = bundle.directory.join("source");
        fs::create_dir_all(source.join("file")).expect("create a directory");
        bundle.mount("/mnt", "tmpfs", "tmpfs", &[]);
        bundle.mount("/mnt/below", "bind", source.to_str().expect("the path is ASCII"), &["bind"]);
    });
    assert_eq!(text, "below\nfile\n");
}

/// Creates a directory with a file in the bundle, next to the root. Returns its path.
fn source(bundle: &Bundle) -> String {
    let path = bundle.directory.join("source");
    fs::create_dir_all(path.join("deep")).expect("create a directory");
    fs::write(path.join("file"), "of the host\n").expect("write a file");
    path.to_str().expect("the path is ASCII").to_owned()
}

fn bind_of_a_directory(case: &Case) {
    let mut bundle = case.script("cat /data/file; echo written > /data/back");
    let from = source(&bundle);
    bundle.mount("/data", "bind", &from, &["rbind", "rw"]);
    let container = case.container(bundle);
    assert_eq!(container.run().ok(), "of the host\n");
    assert_eq!(fs::read_to_string(format!("{from}/back")).expect("the container wrote the file"), "written\n");
}

fn bind_of_a_file(case: &Case) {
    let text = case.output("cat /etc/given /etc/passwd", |bundle| {
        let from = source(bundle);
        bundle.mount("/etc/given", "bind", &format!("{from}/file"), &["bind"]);
        bundle.mount("/etc/passwd", "bind", &format!("{from}/file"), &["bind", "ro"]);
    });
    assert_eq!(text, "of the host\nof the host\n");
}

fn bind_by_option_only(case: &Case) {
    let text = case.output("cat /data/file", |bundle| {
        let from = source(bundle);
        bundle.mount("/data", "none", &from, &["bind"]);
    });
    assert_eq!(text, "of the host\n");
}

fn bind_is_remounted_read_only(case: &Case) {
    let all = mounts(case, |bundle| {
        let from = source(bundle);
        bundle.mount("/data", "bind", &from, &["bind", "ro", "nosuid", "nodev", "noexec"]);
    });
    for flag in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(at(&all, "/data").options.iter().any(|option| option == flag), "{flag}: {all:?}");
    }
}

/// Binds a tree of two mounts of the host on `/data`, and returns the mounts of the container.
fn tree(case: &Case, options: &[&str]) -> Vec<Mount> {
    let holder = case.bundle();
    let from = source(&holder);
    case.program("mount", &["-t", "tmpfs", "tmpfs", &format!("{from}/deep")]).ok();
    let all = mounts(case, |bundle| {
        bundle.mount("/data", "bind", &from, options);
    });
    case.program("umount", &[&format!("{from}/deep")]).ok();
    all
}

fn bind_not_recursive(case: &Case) {
    let all = tree(case, &["bind"]);
    at(&all, "/data");
    assert!(!all.iter().any(|mount| mount.mount_point == "/data/deep"), "{all:?}");
}

fn bind_recursive(case: &Case) {
    let all = tree(case, &["rbind", "ro"]);
    assert!(at(&all, "/data").has("ro"));
    assert!(
        at(&all, "/data/deep").options.iter().any(|option| option == "rw"),
        "ro must apply to the first mount only"
    );
}

fn recursive_read_only(case: &Case) {
    let all = tree(case, &["rbind", "rro"]);
    for path in ["/data", "/data/deep"] {
        assert!(at(&all, path).options.iter().any(|option| option == "ro"), "{path}");
    }
}

fn recursive_attributes(case: &Case) {
    for (option, shown) in [
        ("rnosuid", "nosuid"),
        ("rnodev", "nodev"),
        ("rnoexec", "noexec"),
        ("rnodiratime", "nodiratime"),
        ("rnoatime", "noatime"),
        ("rrelatime", "relatime"),
        ("rnosymfollow", "nosymfollow"),
    ] {
        let all = tree(case, &["rbind", option]);
        for path in ["/data", "/data/deep"] {
            assert!(at(&all, path).has(shown), "{option} at {path}: {:?}", at(&all, path));
        }
    }
}

fn propagation(case: &Case) {
    let table = [
        ("shared", "shared"),
        ("rshared", "shared"),
        ("private", "private"),
        ("rprivate", "private"),
        ("unbindable", "unbindable"),
        ("runbindable", "unbindable"),
    ];
    let all = mounts(case, |bundle| {
        let from = source(bundle);
        for (option, _) in table {
            bundle.mount(&format!("/mnt/{option}"), "bind", &from, &["bind", option]);
        }
    });
    for (option, shown) in table {
        let mount = at(&all, &format!("/mnt/{option}"));
        assert!(mount.propagation().starts_with(shown), "{option}: {mount:?}");
    }
}

fn host_mount_reaches_a_slave(case: &Case) {
    let mut bundle = case.script("echo up > /up; while ! [ -e /data/deep/now ]; do sleep 0.01; done; echo seen");
    let from = source(&bundle);
    // The tree is made shared explicitly, so that the propagation of the machine's mounts does not matter.
    case.program("mount", &["--bind", &from, &from]).ok();
    case.program("mount", &["--make-shared", &from]).ok();
    bundle.mount("/data", "bind", &from, &["rbind", "rslave"]);
    bundle.spec["linux"]["rootfsPropagation"] = json!("rslave");
    let container = case.container(bundle);
    container.create().ok();
    let pid = container.pid();
    container.start().ok();
    container.wait_for_line("/up");
    case.program("mount", &["-t", "tmpfs", "tmpfs", &format!("{from}/deep")]).ok();
    fs::write(format!("{from}/deep/now"), "").expect("create a file in the new mount");
    container.wait(pid);
    container.delete().ok();
    case.program("umount", &[&format!("{from}/deep")]).ok();
    case.program("umount", &[&from]).ok();
}

fn destination_is_created(case: &Case) {
    let text = case.output("cat /a/b/c/file; ls -d /x/y/z", |bundle| {
        let from = source(bundle);
        bundle.mount("/a/b/c", "bind", &from, &["bind"]);
        bundle.mount("/x/y/z", "tmpfs", "tmpfs", &[]);
    });
    assert_eq!(text, "of the host\n/x/y/z\n");
}

fn destination_through_a_symlink_stays_inside(case: &Case) {
    let mut bundle = case.script("ls /tmp/real");
    let from = source(&bundle);
    fs::create_dir(bundle.path("/tmp/real")).expect("create a directory");
    std::os::unix::fs::symlink("/tmp/real", bundle.path("/link")).expect("create a symlink");
    bundle.mount("/link", "bind", &from, &["bind"]);
    assert_eq!(case.container(bundle).run().ok(), "deep\nfile\n");
}

fn destination_relative(case: &Case) {
    // Version 1.0 of the specification allowed this ("relative to /"); runc and crun still accept it.
    let text = case.output("ls -d /rel", |bundle| {
        bundle.mount("rel", "tmpfs", "tmpfs", &[]);
    });
    assert_eq!(text, "/rel\n");
}

fn missing_source(case: &Case) {
    case.assert_refused(&["/nowhere/at/all"], |bundle| {
        bundle.mount("/data", "bind", "/nowhere/at/all", &["bind"]);
    });
}

fn unknown_filesystem(case: &Case) {
    case.assert_refused(&["nosuchfs", "/data", "no such device"], |bundle| {
        bundle.mount("/data", "nosuchfs", "x", &[]);
    });
}

fn copy_up(case: &Case) {
    let text = case.output("cat /keep/file; echo new > /keep/file", |bundle| {
        fs::create_dir(bundle.path("/keep")).expect("create a directory");
        fs::write(bundle.path("/keep/file"), "of the image\n").expect("write a file");
        bundle.mount("/keep", "tmpfs", "tmpfs", &["tmpcopyup"]);
    });
    assert_eq!(text, "of the image\n");
}

fn idmapped(case: &Case, option: &str) {
    let text = case.output("stat -c %u /data/file", |bundle| {
        let from = source(bundle);
        bundle.mount("/data", "bind", &from, &["rbind", option]);
        let mapping = json!([{ "containerID": 0, "hostID": 5000, "size": 1000 }]);
        let mount = bundle.spec["mounts"].as_array_mut().expect("mounts").last_mut().expect("the mount was added");
        mount["uidMappings"] = mapping.clone();
        mount["gidMappings"] = mapping;
    });
    assert_eq!(text, "5000\n");
}

fn idmapped_bind(case: &Case) {
    idmapped(case, "idmap");
}

fn idmapped_recursive(case: &Case) {
    idmapped(case, "ridmap");
}

fn cgroup_read_only(case: &Case) {
    let text = case.output(
        "for d in /sys/fs/cgroup/*/; do [ -d $d ] || d=/sys/fs/cgroup; mkdir $d/x 2>&1; done; true",
        |bundle| {
            bundle.mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]);
        },
    );
    assert!(text.contains("Read-only"), "{text}");
}

fn proc_and_sys_are_usable(case: &Case) {
    let text = case.output("readlink /proc/self; ls /sys/class/net; ls -d /dev/shm /dev/mqueue /dev/pts/ptmx", |_| {});
    assert!(text.contains("lo") && text.contains("/dev/pts/ptmx"), "{text}");
}

fn host_mounts_are_not_visible(case: &Case) {
    let all = mounts(case, |_| {});
    let directory = case.directory().to_str().expect("the path is ASCII");
    for mount in &all {
        assert!(!mount.mount_point.starts_with(directory), "{mount:?}");
    }
    let expected = ["/", "/proc", "/dev", "/sys"];
    assert!(
        all.iter().all(|mount| expected
            .iter()
            .any(|top| mount.mount_point == *top || mount.mount_point.starts_with(&format!("{top}/")))),
        "{all:?}"
    );
}

fn rootfs_propagation(case: &Case) {
    for (value, shown) in
        [("private", "private"), ("rprivate", "private"), ("unbindable", "unbindable"), ("shared", "shared")]
    {
        let all = mounts(case, |bundle| bundle.spec["linux"]["rootfsPropagation"] = json!(value));
        assert!(at(&all, "/").propagation().starts_with(shown), "{value}: {:?}", at(&all, "/"));
    }
    case.assert_refused(&["propagation", "sideways"], |bundle| {
        bundle.spec["linux"]["rootfsPropagation"] = json!("sideways")
    });
}

fn readonly_root(case: &Case) {
    let text = case
        .output("touch /x 2>&1; touch /dev/shm/x && echo fine", |bundle| bundle.spec["root"]["readonly"] = json!(true));
    assert!(text.contains("Read-only file system") && text.contains("fine"), "{text}");
}

fn masked_and_readonly_paths(case: &Case) {
    let text = case.output(
        "cat /etc/group; ls /home; touch /tmp/x 2>&1; echo 1 2>&1 > /proc/sys/net/ipv4/ip_forward",
        |bundle| {
            bundle.spec["linux"]["maskedPaths"] = json!(["/etc/group", "/home"]);
            bundle.spec["linux"]["readonlyPaths"] = json!(["/tmp", "/proc/sys"]);
            bundle.script(
                "cat /etc/group; ls /home; touch /tmp/x 2>&1; (echo 1 > /proc/sys/net/ipv4/ip_forward) 2>&1; true",
            );
        },
    );
    assert_eq!(text.matches("Read-only").count(), 2, "{text}");
    assert!(!text.contains("root") && !text.contains("user"), "{text}");
}

fn missing_masked_paths_are_ignored(case: &Case) {
    case.output("true", |bundle| {
        bundle.spec["linux"]["maskedPaths"] = json!(["/nowhere/at/all"]);
        bundle.spec["linux"]["readonlyPaths"] = json!(["/nowhere/else"]);
    });
}
