//! `mounts` and the host: flags of the source of a bind mount, propagation of the root, and unusual paths.

use std::fs;

use oci_tests::{Bundle, Case, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    source_flags_stay_without_flag_options,
    source_flags_are_cleared_by_a_flag_option,
    read_only_source_stays_read_only,
    read_write_clears_read_only,
    read_write_of_a_read_only_source_in_a_user_namespace,
    read_only_source_in_a_user_namespace,
    host_mount_below_a_slave_root,
    host_mount_below_a_private_root,
    mounts_below_the_root_are_not_peers,
    shared_volume_in_a_slave_root,
    destination_with_dots,
    masked_path_listed_twice,
    device_in_place_of_a_symlink,
    device_listed_twice,
    many_mounts,
);

/// Mounts a tmpfs with a program on the host with these flags, and calls `body` with its path. Unmounts it afterwards.
fn with_source(case: &Case, flags: &str, body: impl FnOnce(&str)) {
    let source = case.directory().join("source");
    fs::create_dir(&source).expect("create a directory");
    let source = source.to_str().expect("the path is ASCII");
    case.program("mount", &["-t", "tmpfs", "tmpfs", source]).ok();
    fs::copy("/bin/busybox", format!("{source}/true")).expect("busybox-static is installed: scripts/setup test");
    case.program("mount", &["-o", &format!("remount,bind,{flags}"), source]).ok();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(source)));
    case.program("umount", &["--lazy", source]).ok();
    if let Err(failure) = result {
        std::panic::resume_unwind(failure);
    }
}

/// Returns the options of the mount on `/data` in a container.
fn options_of(case: &Case, source: &str, options: &[&str]) -> Vec<String> {
    let text = case.output("cat /proc/self/mountinfo", |bundle| {
        bundle.mount("/data", "bind", source, options);
    });
    let mounts = Mount::parse(&text);
    mounts.into_iter().find(|mount| mount.mount_point == "/data").expect("the mount exists").options
}

fn has(options: &[String], flag: &str) -> bool {
    options.iter().any(|option| option == flag)
}

fn source_flags_stay_without_flag_options(case: &Case) {
    with_source(case, "nosuid,nodev,noexec", |source| {
        let options = options_of(case, source, &["rbind", "rprivate"]);
        assert!(["nosuid", "nodev", "noexec"].iter().all(|flag| has(&options, flag)), "{options:?}");
    });
}

fn source_flags_are_cleared_by_a_flag_option(case: &Case) {
    with_source(case, "nosuid,nodev,noexec", |source| {
        for option in ["rw", "ro", "nodev"] {
            let options = options_of(case, source, &["rbind", "rprivate", option]);
            let flags = ["nosuid", "nodev", "noexec"].iter().filter(|flag| has(&options, flag));
            assert!(flags.eq(["nodev"].iter().filter(|flag| **flag == option)), "{option}: {options:?}");
        }
        let text = case.output("/data/true && echo runs", |bundle| {
            bundle.mount("/data", "bind", source, &["rbind", "rprivate", "rw"]);
        });
        assert_eq!(text, "runs\n");
    });
}

fn read_only_source_stays_read_only(case: &Case) {
    with_source(case, "ro", |source| {
        for requested in [&["bind"][..], &["bind", "nosuid"]] {
            let options = options_of(case, source, requested);
            assert!(has(&options, "ro"), "{requested:?}: {options:?}");
        }
    });
}

fn read_write_clears_read_only(case: &Case) {
    with_source(case, "ro", |source| {
        let options = options_of(case, source, &["bind", "rw"]);
        assert!(has(&options, "rw"), "{options:?}");
    });
}

fn user_namespace(bundle: &mut Bundle) {
    bundle.namespace("user", None);
    for field in ["uidMappings", "gidMappings"] {
        bundle.spec["linux"][field] = json!([{ "containerID": 0, "hostID": 0, "size": 65536 }]);
    }
}

fn read_write_of_a_read_only_source_in_a_user_namespace(case: &Case) {
    with_source(case, "ro,nosuid,nodev,noexec", |source| {
        for option in ["rw", "suid", "dev", "exec"] {
            let mut bundle = case.bundle();
            user_namespace(&mut bundle);
            bundle.mount("/data", "bind", source, &["bind", option]);
            case.container(bundle).run().error_with(&["/data"]);
        }
    });
}

fn read_only_source_in_a_user_namespace(case: &Case) {
    with_source(case, "ro,noexec", |source| {
        let text = case.output("grep ' /data ' /proc/self/mountinfo; touch /data/new 2>&1; true", |bundle| {
            user_namespace(bundle);
            bundle.mount("/data", "bind", source, &["bind", "nosuid"]);
        });
        let mount = Mount::parse(&text).remove(0);
        assert!(["ro", "noexec", "nosuid"].iter().all(|flag| mount.has(flag)), "{text}");
        assert!(text.contains("Read-only"), "{text}");
    });
}

/// Runs a container whose root is a shared mount of the host, mounts a tmpfs with a file on `/mnt` of the root while it
/// is running, and returns the content of `/out`.
fn run_during_host_mount(case: &Case, change: impl FnOnce(&mut Bundle), script: &str) -> String {
    let mut bundle = case.script(script);
    let root = bundle.path("/").to_str().expect("the path is ASCII").trim_end_matches('/').to_owned();
    case.program("mount", &["--bind", &root, &root]).ok();
    case.program("mount", &["--make-shared", &root]).ok();
    change(&mut bundle);
    let container = case.container(bundle);
    container.create().ok();
    let pid = container.pid();
    container.start().ok();
    container.wait_for_line("/up");
    case.program("mount", &["-t", "tmpfs", "tmpfs", &format!("{root}/mnt")]).ok();
    fs::write(format!("{root}/mnt/now"), "").expect("create a file in the new mount");
    fs::write(format!("{root}/mounted"), "").expect("create a file in the root");
    container.wait(pid);
    let text = fs::read_to_string(format!("{root}/out")).unwrap_or_default();
    container.delete().ok();
    case.program("umount", &[&format!("{root}/mnt")]).ok();
    case.program("umount", &["--lazy", &root]).ok();
    text
}

/// Waits for the mount on the host and lists `/mnt` into `/out`.
const LIST_MOUNT: &str = "echo up > /up; while ! [ -e /mounted ]; do sleep 0.01; done; ls /mnt > /out";

fn host_mount_below_a_slave_root(case: &Case) {
    for propagation in ["rslave", "slave"] {
        let slave = |bundle: &mut Bundle| bundle.spec["linux"]["rootfsPropagation"] = json!(propagation);
        assert_eq!(run_during_host_mount(case, slave, LIST_MOUNT), "now\n", "{propagation}");
    }
}

fn host_mount_below_a_private_root(case: &Case) {
    assert_eq!(run_during_host_mount(case, |_| {}, LIST_MOUNT), "", "without rootfsPropagation");
    // A shared root is in a new peer group (config-linux.md).
    for propagation in ["rprivate", "shared", "rshared"] {
        let other = |bundle: &mut Bundle| bundle.spec["linux"]["rootfsPropagation"] = json!(propagation);
        assert_eq!(run_during_host_mount(case, other, LIST_MOUNT), "", "{propagation}");
    }
}

/// Mounts that the container creates below a host mount in its root must not propagate to the host.
fn mounts_below_the_root_are_not_peers(case: &Case) {
    let mut bundle = case.script("cat /proc/self/mountinfo");
    let below = bundle.path("/home").to_str().expect("the path is ASCII").to_owned();
    case.program("mount", &["-t", "tmpfs", "tmpfs", &below]).ok();
    case.program("mount", &["--make-shared", &below]).ok();
    bundle.mount("/home/here", "tmpfs", "tmpfs", &[]);
    let text = case.container(bundle).run();
    let on_host = case.program("ls", &[&format!("/proc/self/root{below}")]).ok().to_owned();
    let leaked =
        case.program("sh", &["-c", &format!("grep -c ' {below}/here ' /proc/self/mountinfo; true")]).ok() != "0\n";
    case.program("umount", &["--lazy", &below]).ok();
    assert!(!leaked, "the mount of the container propagated to the host: {on_host}");
    let mounts = Mount::parse(text.ok());
    let home = mounts.iter().find(|mount| mount.mount_point == "/home").expect("the host's mount is in the container");
    assert!(!home.propagation().contains("shared"), "{home:?}");
}

/// The propagation of the root does not override the propagation of a volume.
fn shared_volume_in_a_slave_root(case: &Case) {
    with_source(case, "rw", |source| {
        case.program("mount", &["--make-shared", source]).ok();
        let text = case.output("cat /proc/self/mountinfo", |bundle| {
            bundle.spec["linux"]["rootfsPropagation"] = json!("rslave");
            bundle.mount("/data", "bind", source, &["rbind", "rshared"]);
        });
        let mounts = Mount::parse(&text);
        let data = mounts.iter().find(|mount| mount.mount_point == "/data").expect("the mount exists");
        assert!(data.propagation().starts_with("shared"), "{data:?}");
    });
}

fn destination_with_dots(case: &Case) {
    let text = case.output(
        "ls -d /srv/x; grep -c ' /srv/x ' /proc/self/mountinfo; grep -c ' /mnt ' /proc/self/mountinfo",
        |bundle| {
            bundle.mount("/a/../../srv/./x", "tmpfs", "tmpfs", &[]);
            bundle.mount("/home/../mnt", "tmpfs", "tmpfs", &[]);
        },
    );
    assert_eq!(text, "/srv/x\n1\n1\n");
}

fn masked_path_listed_twice(case: &Case) {
    let text = case.output("grep -c -e ' /home ' -e ' /etc/group ' /proc/self/mountinfo", |bundle| {
        bundle.spec["linux"]["maskedPaths"] = json!(["/home", "/etc/group", "/home/", "/etc/./group", "/home"]);
    });
    assert_eq!(text, "2\n");
}

fn device_in_place_of_a_symlink(case: &Case) {
    let text = case.output("ls -l /dev/stdin | cut -c1; readlink /dev/stdout", |bundle| {
        bundle.spec["linux"]["devices"] =
            json!([{ "path": "/dev/stdin", "type": "c", "major": 1, "minor": 5, "fileMode": 0o666 }]);
    });
    assert_eq!(text, "c\n/proc/self/fd/1\n");
}

/// The first entry is used.
fn device_listed_twice(case: &Case) {
    let text = case.output("stat -c '%a %t:%T' /dev/mine", |bundle| {
        bundle.spec["linux"]["devices"] = json!([
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640 },
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600 },
        ]);
    });
    assert_eq!(text, "640 1:5\n");
}

/// There are more mounts than the RLIMIT_NOFILE of the caller. The container must have the limit of the caller.
fn many_mounts(case: &Case) {
    const MOUNTS: usize = 400;
    let mut bundle = case.script("grep -c ' /mnt/' /proc/self/mountinfo; ulimit -n");
    let source = bundle.directory.join("source");
    fs::create_dir(&source).expect("create a directory");
    for number in 0..MOUNTS {
        bundle.mount(&format!("/mnt/{number}"), "bind", source.to_str().expect("the path is ASCII"), &["bind", "ro"]);
    }
    let directory = bundle.directory.clone();
    let container = case.container(bundle);
    let bundle = directory.to_str().expect("the path is ASCII");
    let outcome = case.call_from(r#"ulimit -Sn 256; exec "$@""#, &["run", "--bundle", bundle, &container.id]);
    assert_eq!(outcome.ok(), format!("{MOUNTS}\n256\n"));
}
