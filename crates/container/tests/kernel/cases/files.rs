//! Root, mounts, masks.

use std::{fs, path::Path};

use rustix::{
    fs::CWD,
    mount::{MountPropagationFlags, OpenTreeFlags, open_tree},
};
use serde_json::json;

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![
    readonly_root,
    writable_root,
    detached_root,
    binds,
    given_mounts,
    recursive_readonly,
    destinations_are_created,
    symlinked_destinations_stay_inside,
    copies_up,
    masked_and_readonly_paths,
    cgroup_tree_is_the_containers,
    mount_table,
    working_directory_is_created,
    no_mount_propagates_to_a_shared_host,
    later_host_mounts_propagate_to_a_slave_volume,
];

fn mount(entry: serde_json::Value) -> oci::Mount {
    serde_json::from_value(entry).expect("a mount")
}

fn readonly_root(node: &Node) {
    let out = node.shell("touch /x || echo refused; touch /dev/shm/x && echo written", |_| ());
    assert_eq!(out.stdout, "refused\nwritten");
}

fn writable_root(node: &Node) {
    let mut spec = bundle::spec(&["/bin/touch", "/x"]);
    spec.root.as_mut().expect("root").readonly = false;
    let image = node.image();
    assert_eq!(node.run(spec, node.inputs_of(&image)).expect("runs").code, 0);
    assert!(image.join("x").exists());
}

fn detached_root(node: &Node) {
    let image = node.image();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, &image, flags).expect("a detached mount");
    let mut inputs = node.inputs_of(Path::new("/"));
    inputs.rootfs = container::Rootfs::Mount(tree);
    let out = node.run(bundle::spec(&["/bin/ls", "/"]), inputs).expect("runs");
    assert_eq!(out.stdout, "bin\ndev\netc\nproc\nsys\ntmp");
}

fn binds(node: &Node) {
    let host = node.image();
    fs::write(host.join("file"), "from the host").expect("file");
    let source = |name: &str| host.join(name).display().to_string();
    let out = node.shell("cat /mnt/here; cat /deep/er/file; touch /deep/er/new || echo refused; touch /rw/new && echo ok", |spec| {
        spec.root.as_mut().expect("root").readonly = false;
        spec.mounts.extend([
            mount(json!({"destination": "/mnt/here", "type": "bind", "source": source("file"), "options": ["rbind", "ro"]})),
            mount(json!({"destination": "/deep/er", "source": source(""), "options": ["rbind", "ro", "nosuid"]})),
            mount(json!({"destination": "/rw", "type": "none", "source": source("tmp"), "options": ["bind"]})),
        ]);
    });
    assert_eq!(out.stdout, "from the hostfrom the hostrefused\nok", "{}", out.stderr);
    assert!(host.join("tmp/new").exists());
}

/// Detached mounts given by index, as by the daemon.
fn given_mounts(node: &Node) {
    let host = node.image();
    fs::write(host.join("file"), "given").expect("file");
    let mut spec = bundle::spec(&["/bin/sh", "-c", "cat /volume/file; touch /volume/x || echo refused"]);
    spec.mounts.push(mount(
        json!({"destination": "/volume", "type": "bind", "source": "/nowhere", "options": ["rbind", "ro"]}),
    ));
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mut inputs = node.inputs();
    inputs.mounts.insert(7, open_tree(CWD, &host, flags).expect("a detached mount"));
    assert_eq!(node.run(spec, inputs).expect("runs").stdout, "givenrefused");
}

fn recursive_readonly(node: &Node) {
    let host = node.image();
    let inner = host.join("tmp");
    rustix::mount::mount(c"tmpfs", &inner, c"tmpfs", rustix::mount::MountFlags::empty(), None).expect("a mount below");
    for (option, expected) in [("ro", "refused\nwritten"), ("rro", "refused\nrefused")] {
        let script =
            "touch /v/x 2>/dev/null || echo refused; touch /v/tmp/x 2>/dev/null && echo written || echo refused";
        let out = node.shell(script, |spec| {
            let source = host.display().to_string();
            spec.mounts.push(mount(
                json!({"destination": "/v", "type": "bind", "source": source, "options": ["rbind", option]}),
            ));
        });
        assert_eq!(out.stdout, expected, "{option}: {}", out.stderr);
    }
    rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::empty()).expect("unmount");
}

fn destinations_are_created(node: &Node) {
    let out = node.shell("stat -c %a /new/directory; grep -c '/new/directory ' /proc/self/mountinfo", |spec| {
        spec.mounts.push(mount(
            json!({"destination": "/new/directory", "type": "tmpfs", "source": "tmpfs", "options": ["mode=700"]}),
        ));
    });
    assert_eq!(out.stdout, "700\n1", "{}", out.stderr);
}

/// Symlinks of the image (absolute, with `..`, dangling) are resolved inside the container (CVE-2021-30465).
fn symlinked_destinations_stay_inside(node: &Node) {
    let image = node.image();
    for (target, link) in [("/etc", "abs"), ("../../../../etc", "up"), ("/not/yet", "dangling")] {
        std::os::unix::fs::symlink(target, image.join(link)).expect("symlink");
    }
    let before: Vec<_> = fs::read_dir("/").expect("host root").map(|entry| entry.expect("entry").file_name()).collect();
    let mut spec = bundle::spec(&["/bin/sh", "-c", "cut -d' ' -f5 /proc/self/mountinfo | grep -E 'in-|not'"]);
    for destination in ["/abs/in-abs", "/up/in-up", "/dangling/in-dangling"] {
        spec.mounts.push(mount(json!({"destination": destination, "type": "tmpfs", "source": "tmpfs"})));
    }
    let out = node.run(spec, node.inputs_of(&image)).expect("runs");
    assert_eq!(out.stdout, "/etc/in-abs\n/etc/in-up\n/not/yet/in-dangling");
    let after: Vec<_> = fs::read_dir("/").expect("host root").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(before, after);
}

fn copies_up(node: &Node) {
    let image = node.image();
    fs::create_dir_all(image.join("data/sub")).expect("directory");
    fs::write(image.join("data/sub/file"), "copied").expect("file");
    crate::node::set_mode(&image.join("data/sub"), 0o711);
    std::os::unix::fs::symlink("sub/file", image.join("data/link")).expect("symlink");
    let mut spec = bundle::spec(&["/bin/sh", "-c", "cat /data/link; stat -c ' %a' /data/sub; echo x > /data/new"]);
    spec.mounts
        .push(mount(json!({"destination": "/data", "type": "tmpfs", "source": "tmpfs", "options": ["tmpcopyup"]})));
    let out = node.run(spec, node.inputs_of(&image)).expect("runs");
    assert_eq!((out.stdout.as_str(), out.code), ("copied 711", 0));
    assert!(!image.join("data/new").exists());
}

fn masked_and_readonly_paths(node: &Node) {
    let script = "cat /proc/keys /proc/timer_list; ls /sys/firmware; touch /sys/firmware/x || echo masked; \
                  touch /proc/irq/default_smp_affinity || echo readonly; echo 1 > /proc/sys/net/ipv4/ip_forward || echo readonly; \
                  stat -c '%F %t:%T' /proc/keys; cat /empty-file; ls /gone 2>/dev/null; echo end";
    let image = node.image();
    fs::write(image.join("empty-file"), "secret").expect("file");
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    let linux = spec.linux.as_mut().expect("linux");
    linux.masked_paths.extend(["/empty-file".to_owned(), "/gone".to_owned()]);
    let out = node.run(spec, node.inputs_of(&image)).expect("runs");
    assert_eq!(out.stdout, "masked\nreadonly\nreadonly\ncharacter special file 1:3\nend", "{}", out.stderr);
}

fn cgroup_tree_is_the_containers(node: &Node) {
    let script = "cat /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/cgroup.procs 2>/dev/null | head -1; \
                  touch /sys/fs/cgroup/x 2>/dev/null || echo refused; mkdir /sys/fs/cgroup/memory/x 2>/dev/null || echo refused";
    assert_eq!(node.shell(script, |_| ()).stdout, "1\nrefused\nrefused");
    let out = node.shell("grep -E 'cgroup' /proc/self/mountinfo | grep -v tmpfs | cut -d' ' -f4 | sort -u", |_| ());
    assert_eq!(out.stdout, "/", "each tree is shown from the container's group down");
}

/// The mount table contains the spec's mounts with their flags, and no mounts of the host.
fn mount_table(node: &Node) {
    let out = node.shell("grep -vE 'cgroup|masked' /proc/self/mountinfo | cut -d' ' -f5,6", |spec| {
        spec.linux.as_mut().expect("linux").masked_paths.clear();
        spec.linux.as_mut().expect("linux").readonly_paths.clear();
    });
    let expected = "/ ro,relatime\n/proc rw,nosuid,nodev,noexec,relatime\n/dev rw,nosuid\n\
                    /dev/pts rw,nosuid,noexec,relatime\n/dev/shm rw,nosuid,nodev,noexec,relatime\n\
                    /dev/mqueue rw,nosuid,nodev,noexec,relatime\n/sys ro,nosuid,nodev,noexec,relatime";
    assert_eq!(out.stdout, expected);
}

fn working_directory_is_created(node: &Node) {
    let out = node.shell("pwd", |spec| spec.process.as_mut().expect("process").cwd = "/srv/app".into());
    assert_eq!(out.stdout, "/srv/app");
    let image = node.image();
    fs::create_dir(image.join("closed")).expect("directory");
    crate::node::set_mode(&image.join("closed"), 0o700);
    let mut spec = bundle::spec(&["/bin/pwd"]);
    let process = spec.process.as_mut().expect("process");
    (process.cwd, process.user.uid) = ("/closed".into(), 1000);
    assert_eq!(node.run(spec, node.inputs_of(&image)).expect("runs").stdout, "/closed", "root enters it for the user");
}

/// The host's mounts are shared, as with systemd, and the root has each propagation: the host's mount table does not
/// change.
fn no_mount_propagates_to_a_shared_host(node: &Node) {
    let change = |flags| rustix::mount::mount_change(c"/", flags | MountPropagationFlags::REC).expect("propagation");
    change(MountPropagationFlags::SHARED);
    let before = crate::node::mount_count();
    for propagation in [None, Some("shared"), Some("rslave"), Some("private")] {
        let script = "grep -E '^[0-9]+ [0-9]+ [0-9:]+ /image-[0-9]+ / ' /proc/self/mountinfo | grep -c shared:";
        let out = node.shell(script, |spec| {
            spec.linux.as_mut().expect("linux").rootfs_propagation = propagation.map(str::to_owned);
        });
        assert_eq!(crate::node::mount_count(), before, "{propagation:?}");
        let expected = if propagation == Some("shared") { "1" } else { "0" };
        assert_eq!(out.stdout, expected, "{propagation:?}: {}", out.stderr);
    }
    change(MountPropagationFlags::PRIVATE);
}

/// A volume is given like by the daemon (a clone, set to slave): later mounts of the host below it are visible inside.
fn later_host_mounts_propagate_to_a_slave_volume(node: &Node) {
    let host = node.image();
    let below = host.join("tmp");
    rustix::mount::mount_bind(&host, &host).expect("a bind mount");
    rustix::mount::mount_change(&host, MountPropagationFlags::SHARED).expect("shared");
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, &host, flags).expect("a detached mount");
    let slave = Some(MountPropagationFlags::DOWNSTREAM);
    let slave = syscall::mount_attributes::MountAttributes { propagation: slave, ..Default::default() };
    slave.apply(&tree, true).expect("slave");
    let mut inputs = node.inputs();
    inputs.mounts.insert(7, tree);
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    spec.mounts
        .push(mount(json!({"destination": "/v", "type": "bind", "source": "/v", "options": ["rbind", "rslave"]})));
    let (mut target, _) = node.create(spec, inputs).expect("created");
    target.start().expect("started");
    crate::node::next(&mut target).expect("executed");
    rustix::mount::mount(c"tmpfs", &below, c"tmpfs", rustix::mount::MountFlags::empty(), None).expect("a later mount");
    fs::write(below.join("later"), "seen").expect("file");
    let out = node.exec(&target, &bundle::process(&["cat", "/v/tmp/later"])).expect("exec");
    assert_eq!(out.stdout, "seen", "{}", out.stderr);
    node.end(target);
    rustix::mount::unmount(&below, rustix::mount::UnmountFlags::empty()).expect("unmount");
    rustix::mount::unmount(&host, rustix::mount::UnmountFlags::DETACH).expect("unmount");
}
