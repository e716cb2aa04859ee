//! Every mount option, on a real mount.

use std::fs;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![
    attributes_and_their_inverses,
    recursive_attributes,
    propagation_of_mounts,
    propagation_of_the_root,
    remounts,
    relative_destinations,
    symlinked_destinations_and_mounts_below_read_only_ones,
    overlay_in_a_container,
    proc_with_options,
    file_over_file,
    all_known_options_are_accepted,
];

fn entry(destination: &str, kind: &str, source: &str, options: &[&str]) -> oci::Mount {
    oci::Mount {
        destination: destination.into(),
        kind: Some(kind.to_owned()),
        source: Some(source.to_owned()),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        ..oci::Mount::default()
    }
}

/// Returns the options and optional fields that mountinfo shows for `path`, in a container with these mounts.
fn shown(node: &Node, mounts: Vec<oci::Mount>, path: &str) -> String {
    let script = format!("grep ' {path} ' /proc/self/mountinfo | tail -1");
    let out = node.shell(&script, |spec| spec.mounts.extend(mounts));
    let fields: Vec<&str> = out.stdout.split(' ').skip(5).take_while(|field| *field != "-").collect();
    fields.join(" ")
}

fn attributes_and_their_inverses(node: &Node) {
    let off = ["rw", "suid", "dev", "exec", "diratime", "symfollow", "atime"];
    for (words, expected) in [
        (
            vec!["ro", "nosuid", "nodev", "noexec", "nodiratime", "nosymfollow", "noatime"],
            "ro,nosuid,nodev,noexec,noatime,nodiratime,nosymfollow",
        ),
        (
            vec!["ro", "nosuid", "nodev", "noexec", "nodiratime", "nosymfollow", "noatime"]
                .into_iter()
                .chain(off)
                .collect(),
            "rw,relatime",
        ),
        (vec!["strictatime"], "rw"),
        (vec!["strictatime", "nostrictatime"], "rw,relatime"),
        (vec!["defaults", "async", "relatime", "nomand", "loud", "silent", "iversion", "nolazytime"], "rw,relatime"),
    ] {
        let new = shown(node, vec![entry("/v", "tmpfs", "tmpfs", &words)], "/v");
        assert_eq!(new, expected, "{words:?}");
        let bind: Vec<&str> = ["bind"].into_iter().chain(words.iter().copied()).collect();
        let bound = shown(node, vec![entry("/v", "bind", "/", &bind)], "/v");
        assert_eq!(bound, expected, "{bind:?}");
    }
}

fn recursive_attributes(node: &Node) {
    let directory = format!("/volume-{}", node.number());
    let below = format!("{directory}/below");
    fs::create_dir_all(&below).expect("directory");
    mount(c"tmpfs", below.as_str(), c"tmpfs", MountFlags::empty(), None).expect("tmpfs");
    for (words, expected, expected_below) in [
        (vec!["ro"], "ro,relatime", "rw,relatime"),
        (vec!["rro"], "ro,relatime", "ro,relatime"),
        (vec!["rro", "rrw"], "rw,relatime", "rw,relatime"),
        (vec!["rnosuid", "rnodev", "rnoexec"], "rw,nosuid,nodev,noexec,relatime", "rw,nosuid,nodev,noexec,relatime"),
        (
            vec!["rnoatime", "rnodiratime", "rnosymfollow"],
            "rw,noatime,nodiratime,nosymfollow",
            "rw,noatime,nodiratime,nosymfollow",
        ),
        (
            vec!["rnosuid", "rnodev", "rnoexec", "rsuid", "rdev", "rexec", "rdiratime", "rsymfollow", "ratime"],
            "rw,relatime",
            "rw,relatime",
        ),
        (vec!["rstrictatime"], "rw", "rw"),
        (vec!["rstrictatime", "rnostrictatime", "rnorelatime", "rrelatime"], "rw,relatime", "rw,relatime"),
    ] {
        let words: Vec<&str> = ["rbind"].into_iter().chain(words).collect();
        let mounts = || vec![entry("/v", "bind", &directory, &words)];
        assert_eq!(shown(node, mounts(), "/v"), expected, "{words:?}");
        assert_eq!(shown(node, mounts(), "/v/below"), expected_below, "{words:?}");
    }
    unmount(below.as_str(), UnmountFlags::empty()).expect("umount");
}

fn propagation_of_mounts(node: &Node) {
    let directory = format!("/volume-{}", node.number());
    fs::create_dir(&directory).expect("directory");
    mount(c"tmpfs", directory.as_str(), c"tmpfs", MountFlags::empty(), None).expect("tmpfs");
    mount_change(directory.as_str(), MountPropagationFlags::SHARED).expect("shared");
    for (words, kinds) in [
        (vec!["rbind", "rprivate"], vec![]),
        (vec!["bind", "private"], vec![]),
        (vec!["rbind", "rslave"], vec!["master"]),
        (vec!["bind", "slave"], vec!["master"]),
        (vec!["rbind", "rslave", "rshared"], vec!["shared"]),
        (vec!["bind", "unbindable"], vec!["unbindable"]),
        (vec!["rbind", "runbindable"], vec!["unbindable"]),
    ] {
        let shown = shown(node, vec![entry("/v", "bind", &directory, &words)], "/v");
        let found: Vec<&str> =
            shown.split(' ').skip(1).map(|field| field.split(':').next().unwrap_or_default()).collect();
        for kind in kinds {
            assert!(found.contains(&kind), "{words:?}: {shown}");
        }
        if words[1].ends_with("private") {
            assert!(found.is_empty(), "{words:?}: {shown}");
        }
    }
    unmount(directory.as_str(), UnmountFlags::empty()).expect("umount");
}

fn propagation_of_the_root(node: &Node) {
    for (word, expected) in [
        ("shared", "shared"),
        ("rshared", "shared"),
        ("slave", ""),
        ("rslave", ""),
        ("private", ""),
        ("rprivate", ""),
        ("unbindable", "unbindable"),
        ("runbindable", "unbindable"),
    ] {
        let out = node.shell("grep ' / / ' /proc/self/mountinfo; grep -m1 ' / ' /proc/self/mountinfo", |spec| {
            spec.linux.as_mut().expect("linux").rootfs_propagation = Some(word.to_owned());
        });
        let line = out.stdout.lines().last().expect("the root").split(" - ").next().expect("a field");
        let found = line.split(' ').nth(6).map_or("", |field| field.split(':').next().unwrap_or_default());
        assert_eq!(found, expected, "{word}: {out:?}");
    }
}

fn remounts(node: &Node) {
    let mounts = vec![entry("/v", "tmpfs", "tmpfs", &["size=1k"]), entry("/v", "", "", &["remount", "ro", "nosuid"])];
    assert_eq!(shown(node, mounts, "/v"), "ro,nosuid,relatime");
    let mut spec = bundle::spec(&["true"]);
    spec.mounts.push(entry("/tmp", "", "", &["remount", "ro"]));
    let error = node.run(spec, node.inputs()).expect_err("nothing is mounted there");
    assert!(error.message().contains("remount (is something mounted there?)"), "{error}");
}

fn relative_destinations(node: &Node) {
    let mut spec = bundle::spec(&["true"]);
    spec.mounts.push(entry("tmp/x", "tmpfs", "tmpfs", &[]));
    let plan = container::Plan::new(
        &oci::Spec {
            linux: spec.linux.clone().map(|linux| oci::Linux { cgroups_path: Some("/x".into()), ..linux }),
            ..spec
        },
        node.inputs(),
    );
    let plan = plan.expect("accepted");
    assert!(
        plan.warnings().iter().any(|warning| warning.contains("\"tmp/x\" is not absolute")),
        "{:?}",
        plan.warnings()
    );
    assert_eq!(shown(node, vec![entry("tmp/x", "tmpfs", "tmpfs", &[])], "/tmp/x"), "rw,relatime");
}

fn symlinked_destinations_and_mounts_below_read_only_ones(node: &Node) {
    let image = node.image();
    std::os::unix::fs::symlink("../etc/real", image.join("tmp/link")).expect("symlink");
    let mut spec =
        bundle::spec(&["/bin/sh", "-c", "cut -d' ' -f5,6 /proc/self/mountinfo | grep -e real -e ' ro' | sort"]);
    spec.mounts.push(entry("/tmp/link", "tmpfs", "tmpfs", &["ro"]));
    spec.mounts.push(entry("/tmp/link/below", "tmpfs", "tmpfs", &[]));
    let out = node
        .run(spec.clone(), node.inputs_of(&image))
        .expect("the mount becomes read-only only after the one below it is attached");
    assert!(out.stdout.contains("/etc/real ro,relatime") && out.stdout.contains("/etc/real/below rw"), "{out:?}");
    spec.mounts.truncate(spec.mounts.len() - 2);
    spec.mounts.push(entry("/etc/real", "bind", "/", &["bind", "ro"]));
    spec.mounts.push(entry("/etc/real/not-there", "tmpfs", "tmpfs", &[]));
    let error = node.run(spec, node.inputs_of(&image)).expect_err("the directory cannot be created");
    assert!(error.message().contains("Read-only file system"), "{error}");
}

fn overlay_in_a_container(node: &Node) {
    let base = format!("/overlay-{}", node.number());
    for part in ["lower", "upper", "work"] {
        fs::create_dir_all(format!("{base}/{part}")).expect("directory");
    }
    fs::write(format!("{base}/lower/file"), "below").expect("file");
    let options = [
        format!("lowerdir={base}/lower"),
        format!("upperdir={base}/upper"),
        format!("workdir={base}/work"),
        "nosuid".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let out = node.shell("cat /v/file; echo new > /v/new; grep -c 'overlay' /proc/self/mountinfo", |spec| {
        spec.mounts.push(entry("/v", "overlay", "overlay", &options));
    });
    assert_eq!(out.stdout, "below1", "{out:?}");
    assert_eq!(fs::read_to_string(format!("{base}/upper/new")).expect("new file"), "new\n");
}

fn proc_with_options(node: &Node) {
    let out = node.shell("ls /proc | head -40; grep ' /proc ' /proc/self/mountinfo", |spec| {
        let proc = spec.mounts.iter_mut().find(|mount| mount.destination == "/proc").expect("proc");
        proc.options = ["nosuid", "noexec", "nodev", "hidepid=invisible", "subset=pid"].map(str::to_owned).into();
        let linux = spec.linux.as_mut().expect("linux");
        (linux.masked_paths, linux.readonly_paths) = (vec![], vec![]);
    });
    assert!(out.stdout.contains("hidepid=invisible") && !out.stdout.contains("meminfo"), "{out:?}");
}

fn file_over_file(node: &Node) {
    let file = format!("/file-{}", node.number());
    fs::write(&file, "the host's").expect("file");
    for destination in ["/etc/passwd", "/etc/new/made"] {
        let out = node.shell(&format!("cat {destination}"), |spec| {
            spec.mounts.push(entry(destination, "bind", &file, &["bind", "ro"]));
        });
        assert_eq!(out.stdout, "the host's", "{out:?}");
    }
}

/// Every option that `features` prints is accepted.
fn all_known_options_are_accepted(node: &Node) {
    let image = node.image();
    for word in container::mount_options() {
        let mut spec = bundle::spec(&["true"]);
        spec.linux.as_mut().expect("linux").cgroups_path = Some("/pinion-test-none/x".into());
        let (kind, source) =
            if word.ends_with("bind") || word.ends_with("idmap") { ("bind", "/") } else { ("tmpfs", "tmpfs") };
        let mut mount = entry("/v", kind, source, &[&word]);
        if word.ends_with("idmap") {
            let line = oci::IdMapping { container_id: 0, host_id: 1, size: 1 };
            (mount.uid_mappings, mount.gid_mappings) = (vec![line], vec![line]);
        }
        spec.mounts.push(mount);
        container::Plan::new(&spec, node.inputs_of(&image)).unwrap_or_else(|error| panic!("{word}: {error}"));
    }
}
