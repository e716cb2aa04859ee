//! `mounts` and what the host has: flags of a bind's source, propagation from the root, places that are named in odd
//! ways.

use std::fs;

use oci_tests::{Bundle, Case, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    flags_of_the_source_stay_where_none_is_named,
    flags_of_the_source_go_where_one_is_named,
    read_only_source_stays_so,
    read_write_clears_read_only,
    read_write_of_a_read_only_source_in_a_user_namespace,
    read_only_source_in_a_user_namespace,
    host_mount_below_a_slave_root,
    host_mount_below_a_private_root,
    mounts_below_the_root_are_no_peers,
    shared_volume_in_a_slave_root,
    destination_with_dots,
    masked_twice,
    device_in_place_of_a_symlink,
    device_twice,
    many_mounts,
);

/// A tmpfs with a program on it, mounted on the host with these flags; unmounted at the end.
fn with_source(case: &Case, flags: &str, body: impl FnOnce(&str)) {
    let source = case.directory().join("source");
    fs::create_dir(&source).expect("ours");
    let source = source.to_str().expect("ASCII");
    case.program("mount", &["-t", "tmpfs", "tmpfs", source]).ok();
    fs::copy("/bin/busybox", format!("{source}/true")).expect("busybox-static is installed: scripts/setup test");
    case.program("mount", &["-o", &format!("remount,bind,{flags}"), source]).ok();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(source)));
    case.program("umount", &["--lazy", source]).ok();
    if let Err(failure) = result {
        std::panic::resume_unwind(failure);
    }
}

/// The options of the mount on `/data`.
fn options_of(case: &Case, source: &str, options: &[&str]) -> Vec<String> {
    let text = case.output("cat /proc/self/mountinfo", |bundle| {
        bundle.mount("/data", "bind", source, options);
    });
    let mounts = Mount::parse(&text);
    mounts.into_iter().find(|mount| mount.at == "/data").expect("it is mounted").options
}

fn has(options: &[String], word: &str) -> bool {
    options.iter().any(|option| option == word)
}

fn flags_of_the_source_stay_where_none_is_named(case: &Case) {
    with_source(case, "nosuid,nodev,noexec", |source| {
        let options = options_of(case, source, &["rbind", "rprivate"]);
        assert!(["nosuid", "nodev", "noexec"].iter().all(|flag| has(&options, flag)), "{options:?}");
    });
}

fn flags_of_the_source_go_where_one_is_named(case: &Case) {
    with_source(case, "nosuid,nodev,noexec", |source| {
        for named in ["rw", "ro", "nodev"] {
            let options = options_of(case, source, &["rbind", "rprivate", named]);
            let kept = ["nosuid", "nodev", "noexec"].iter().filter(|flag| has(&options, flag));
            assert!(kept.eq(["nodev"].iter().filter(|flag| **flag == named)), "{named}: {options:?}");
        }
        let text = case.output("/data/true && echo runs", |bundle| {
            bundle.mount("/data", "bind", source, &["rbind", "rprivate", "rw"]);
        });
        assert_eq!(text, "runs\n");
    });
}

fn read_only_source_stays_so(case: &Case) {
    with_source(case, "ro", |source| {
        for named in [&["bind"][..], &["bind", "nosuid"]] {
            let options = options_of(case, source, named);
            assert!(has(&options, "ro"), "{named:?}: {options:?}");
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

/// A container whose root is a shared mount of the host, on which a tmpfs with a file is mounted when it runs.
fn host_mounts_later(case: &Case, change: impl FnOnce(&mut Bundle), script: &str) -> String {
    let mut bundle = case.script(script);
    let root = bundle.path("/").to_str().expect("ASCII").trim_end_matches('/').to_owned();
    case.program("mount", &["--bind", &root, &root]).ok();
    case.program("mount", &["--make-shared", &root]).ok();
    change(&mut bundle);
    let container = case.container(bundle);
    let created = container.create();
    created.ok();
    let pid = container.pid();
    container.start().ok();
    container.line("/up");
    case.program("mount", &["-t", "tmpfs", "tmpfs", &format!("{root}/mnt")]).ok();
    fs::write(format!("{root}/mnt/now"), "").expect("a file in the new mount");
    fs::write(format!("{root}/mounted"), "").expect("a file in the root");
    container.wait(pid);
    let text = fs::read_to_string(format!("{root}/out")).unwrap_or_default();
    container.delete().ok();
    case.program("umount", &[&format!("{root}/mnt")]).ok();
    case.program("umount", &["--lazy", &root]).ok();
    text
}

const SEES_IT: &str = "echo up > /up; while ! [ -e /mounted ]; do sleep 0.01; done; ls /mnt > /out";

fn host_mount_below_a_slave_root(case: &Case) {
    for word in ["rslave", "slave"] {
        let slave = |bundle: &mut Bundle| bundle.spec["linux"]["rootfsPropagation"] = json!(word);
        assert_eq!(host_mounts_later(case, slave, SEES_IT), "now\n", "{word}");
    }
}

fn host_mount_below_a_private_root(case: &Case) {
    assert_eq!(host_mounts_later(case, |_| {}, SEES_IT), "", "no word");
    // A shared root is of a peer group of its own (config-linux.md).
    for word in ["rprivate", "shared", "rshared"] {
        let other = |bundle: &mut Bundle| bundle.spec["linux"]["rootfsPropagation"] = json!(word);
        assert_eq!(host_mounts_later(case, other, SEES_IT), "", "{word}");
    }
}

/// What a container mounts below a mount that the host has in its root is the container's.
fn mounts_below_the_root_are_no_peers(case: &Case) {
    let mut bundle = case.script("cat /proc/self/mountinfo");
    let below = bundle.path("/home").to_str().expect("ASCII").to_owned();
    case.program("mount", &["-t", "tmpfs", "tmpfs", &below]).ok();
    case.program("mount", &["--make-shared", &below]).ok();
    bundle.mount("/home/here", "tmpfs", "tmpfs", &[]);
    let text = case.container(bundle).run();
    let on_host = case.program("ls", &[&format!("/proc/self/root{below}")]).ok().to_owned();
    let leaked =
        case.program("sh", &["-c", &format!("grep -c ' {below}/here ' /proc/self/mountinfo; true")]).ok() != "0\n";
    case.program("umount", &["--lazy", &below]).ok();
    assert!(!leaked, "the container's mount is the host's, too: {on_host}");
    let mounts = Mount::parse(text.ok());
    let home = mounts.iter().find(|mount| mount.at == "/home").expect("the host's mount");
    assert!(!home.propagation().contains("shared"), "{home:?}");
}

/// The word for the root does not undo what a volume is given.
fn shared_volume_in_a_slave_root(case: &Case) {
    with_source(case, "rw", |source| {
        case.program("mount", &["--make-shared", source]).ok();
        let text = case.output("cat /proc/self/mountinfo", |bundle| {
            bundle.spec["linux"]["rootfsPropagation"] = json!("rslave");
            bundle.mount("/data", "bind", source, &["rbind", "rshared"]);
        });
        let mounts = Mount::parse(&text);
        let data = mounts.iter().find(|mount| mount.at == "/data").expect("it is mounted");
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

fn masked_twice(case: &Case) {
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

/// The first is made.
fn device_twice(case: &Case) {
    let text = case.output("stat -c '%a %t:%T' /dev/mine", |bundle| {
        bundle.spec["linux"]["devices"] = json!([
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640 },
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600 },
        ]);
    });
    assert_eq!(text, "640 1:5\n");
}

/// More than the runtime may have open files at first; the container has the limit that the runtime was called with.
fn many_mounts(case: &Case) {
    const MOUNTS: usize = 400;
    let mut bundle = case.script("grep -c ' /mnt/' /proc/self/mountinfo; ulimit -n");
    let source = bundle.directory.join("source");
    fs::create_dir(&source).expect("ours");
    for number in 0..MOUNTS {
        bundle.mount(&format!("/mnt/{number}"), "bind", source.to_str().expect("ASCII"), &["bind", "ro"]);
    }
    let directory = bundle.directory.clone();
    let container = case.container(bundle);
    let bundle = directory.to_str().expect("ASCII");
    let ran = case.call_from(r#"ulimit -Sn 256; exec "$@""#, &["run", "--bundle", bundle, &container.id]);
    assert_eq!(ran.ok(), format!("{MOUNTS}\n256\n"));
}
