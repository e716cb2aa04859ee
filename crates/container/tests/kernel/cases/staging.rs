//! Containers made from a staging namespace.

use container::{Invocation, staging};

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] =
    testbed::cases![same_result_as_without_staging, host_mounts_propagate_to_volumes, other_namespaces_are_refused];

fn staged(node: &Node) -> container::Inputs {
    let invocation = Invocation { staging: Some(staging::make().expect("staging")), ..Invocation::default() };
    container::Inputs { invocation, ..node.inputs() }
}

fn same_result_as_without_staging(node: &Node) {
    let text = "cut -d' ' -f5 /proc/self/mountinfo; ls /; pwd";
    let plain = node.run(bundle::spec(&["sh", "-c", text]), node.inputs()).expect("run");
    let staged = node.run(bundle::spec(&["sh", "-c", text]), staged(node)).expect("run");
    assert_eq!((plain.stdout, plain.stderr, plain.code), (staged.stdout, staged.stderr, staged.code));
}

fn host_mounts_propagate_to_volumes(node: &Node) {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
    let directory = format!("/volume-{}", node.number());
    let below = format!("{directory}/below");
    std::fs::create_dir(&directory).expect("directory");
    mount(c"tmpfs", directory.as_str(), c"tmpfs", MountFlags::empty(), None).expect("tmpfs");
    mount_change(directory.as_str(), MountPropagationFlags::SHARED).expect("shared");
    std::fs::create_dir(&below).expect("directory");
    // The container creates a file when it is up, and waits for the mount that the host then makes.
    let text = "touch /v/up; while ! [ -e /v/below/file ]; do sleep 0.01; done; echo seen";
    let mut spec = bundle::spec(&["sh", "-c", text]);
    spec.mounts.push(oci::Mount {
        destination: "/v".into(),
        source: Some(directory.clone()),
        options: ["rbind", "rw", "rslave"].map(str::to_owned).into(),
        ..oci::Mount::default()
    });
    let mut inputs = staged(node);
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
    inputs.stdio.stdout = Some(write);
    let (mut setup, _) = node.create(spec, inputs).expect("created");
    setup.start().expect("started");
    crate::node::next(&mut setup).expect("executed");
    while !std::path::Path::new(&directory).join("up").exists() {
        std::thread::yield_now();
    }
    mount(c"tmpfs", below.as_str(), c"tmpfs", MountFlags::empty(), None).expect("tmpfs");
    std::fs::write(format!("{below}/file"), "").expect("file");
    assert_eq!(crate::node::reap(&setup), 0);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(read), &mut text).expect("read");
    assert_eq!(text, "seen\n");
    setup.group.remove().expect("removed");
    unmount(below.as_str(), UnmountFlags::empty()).expect("umount");
    unmount(directory.as_str(), UnmountFlags::empty()).expect("umount");
}

fn other_namespaces_are_refused(node: &Node) {
    let other = std::fs::File::open("/proc/self/ns/net").expect("namespace").into();
    let invocation = Invocation { staging: Some(other), ..Invocation::default() };
    let inputs = container::Inputs { invocation, ..node.inputs() };
    let error = node.create(bundle::spec(&["true"]), inputs).expect_err("not a mount namespace");
    assert!(error.message().contains("mount"), "{error}");
}
