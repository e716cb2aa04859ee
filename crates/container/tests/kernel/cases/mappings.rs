//! Id-mapped mounts.

use std::{fs, os::unix::fs::chown};

use oci::IdMapping;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::{
    Case, bundle,
    cases::user_namespaces::{image, map},
    node::Node,
};

pub(crate) const CASES: &[Case] =
    testbed::cases![own_map_of_a_mount, map_of_the_container, only_ridmap_goes_below, what_cannot_be_mapped_is_named,];

fn line(container_id: u32, host_id: u32) -> Vec<IdMapping> {
    vec![IdMapping { container_id, host_id, size: 1000 }]
}

/// Makes a directory with a file of user 5, and a mount below it with another such file.
fn volume(node: &Node) -> String {
    let directory = format!("{}/volume-{}", node.mappable(), node.number());
    fs::create_dir(&directory).expect("directory");
    fs::write(format!("{directory}/file"), "").expect("file");
    chown(format!("{directory}/file"), Some(5), Some(6)).expect("chown");
    let below = format!("{directory}/below");
    fs::create_dir(&below).expect("directory");
    let other = format!("{directory}-other");
    fs::create_dir(&other).expect("directory");
    mount_bind(&other, &below).expect("a mount of its own");
    fs::write(format!("{below}/file"), "").expect("file");
    chown(format!("{below}/file"), Some(5), Some(6)).expect("chown");
    directory
}

fn remove_volume(directory: &str) {
    unmount(format!("{directory}/below"), UnmountFlags::empty()).expect("umount");
}

fn bind(source: &str, options: &[&str]) -> oci::Mount {
    oci::Mount {
        destination: "/v".into(),
        source: Some(source.to_owned()),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        ..oci::Mount::default()
    }
}

fn own_map_of_a_mount(node: &Node) {
    let volume = volume(node);
    for staged in [false, true] {
        let mut spec = bundle::spec(&["/bin/stat", "-c", "%u %g", "/v/file", "/v/below/file"]);
        let mut mount = bind(&volume, &["rbind"]);
        (mount.uid_mappings, mount.gid_mappings) = (line(0, 100), line(0, 200));
        spec.mounts.push(mount);
        let mut inputs = node.inputs();
        inputs.invocation.staging = staged.then(|| container::staging::make().expect("staging"));
        let out = node.run(spec, inputs).expect("runs");
        assert_eq!(out.stdout, "105 206\n5 6", "{out:?}");
    }
    remove_volume(&volume);
}

fn map_of_the_container(node: &Node) {
    let volume = volume(node);
    let mut spec = bundle::spec(&["/bin/sh", "-c", "stat -c '%u %g' /v/file; touch /v/new && stat -c '%u' /v/new"]);
    map(&mut spec);
    spec.mounts.push(bind(&volume, &["bind", "idmap"]));
    // Inside, the file has the same owner as on the disk, and files made there belong to root on the disk.
    let out = node.run(spec, node.inputs_of(&image(node))).expect("runs");
    assert_eq!(out.stdout, "5 6\n0", "{out:?}");
    let new = fs::metadata(format!("{volume}/new")).expect("file");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&new), 0);
    remove_volume(&volume);
}

fn only_ridmap_goes_below(node: &Node) {
    let volume = volume(node);
    for (option, below) in [("idmap", "65534 65534"), ("ridmap", "5 6")] {
        let mut spec = bundle::spec(&["/bin/stat", "-c", "%u %g", "/v/file", "/v/below/file"]);
        map(&mut spec);
        spec.mounts.push(bind(&volume, &["rbind", option]));
        let out = node.run(spec, node.inputs_of(&image(node))).expect("runs");
        assert_eq!(out.stdout, format!("5 6\n{below}"), "{option}: {out:?}");
    }
    remove_volume(&volume);
}

fn what_cannot_be_mapped_is_named(node: &Node) {
    let fails = |mount: oci::Mount| {
        let mut spec = bundle::spec(&["true"]);
        spec.mounts.push(mount);
        node.run(spec, node.inputs()).expect_err("refused").to_string()
    };
    let mapped = |source: &str, options: &[&str]| oci::Mount {
        uid_mappings: line(0, 1),
        gid_mappings: line(0, 1),
        ..bind(source, options)
    };
    let message = fails(mapped("/proc/sys", &["bind"]));
    assert!(message.contains("mount on \"/v\": map ids: file system \"proc\" cannot be id-mapped"), "{message}");
    let message = fails(bind("/", &["bind", "idmap"]));
    assert!(message.contains("mount /v: idmap without a map"), "{message}");
    let mut half = mapped("/", &["bind"]);
    half.gid_mappings.clear();
    assert!(fails(half).contains("mount /v.gidMappings: is missing"));
    let new = oci::Mount { kind: Some("tmpfs".into()), ..mapped("tmpfs", &[]) };
    assert!(fails(new).contains("mount /v: only bind mounts can be id-mapped"));
}
