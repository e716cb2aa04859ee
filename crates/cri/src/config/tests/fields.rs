//! Mounts, CDI devices, security profiles and ports: valid values, and invalid ones that are refused by field.

use cri_proto::v1;
use pod::Propagation;

use super::{assert_pod_refused, assert_refused, container, plain, with_security};

fn bind() -> v1::Mount {
    v1::Mount { container_path: "/in".into(), host_path: "/host".into(), ..Default::default() }
}

fn image() -> v1::Mount {
    let image = v1::ImageSpec { image: "sha256:1".into(), image_ref: "r@sha256:2".into(), ..Default::default() };
    v1::Mount { container_path: "/in".into(), image: Some(image), ..Default::default() }
}

fn with_mount(mount: v1::Mount) -> v1::ContainerConfig {
    v1::ContainerConfig { mounts: vec![mount], ..plain() }
}

fn volume(mount: v1::Mount) -> pod::Volume {
    container(with_mount(mount)).expect("valid").volumes.remove(0)
}

fn map(host_id: u32, container_id: u32, length: u32) -> Vec<v1::IdMapping> {
    vec![v1::IdMapping { host_id, container_id, length }]
}

#[test]
fn mounts_are_bind_mounts_or_images() {
    let bind_mount = volume(v1::Mount { readonly: true, recursive_read_only: true, selinux_relabel: true, ..bind() });
    assert!(bind_mount.readonly && bind_mount.recursive_readonly);
    assert!(bind_mount.selinux_relabel && bind_mount.image.is_none());
    let image_mount = volume(v1::Mount { image_sub_path: "a/b".into(), ..image() });
    assert!(image_mount.readonly, "an image is always read-only");
    let image = image_mount.image.expect("an image");
    assert_eq!((image.image.as_str(), image.image_ref.as_str()), ("sha256:1", "r@sha256:2"));
    assert_eq!(image.sub_path, std::path::Path::new("a/b"));
    let empty = v1::Mount { image: Some(v1::ImageSpec::default()), ..bind() };
    assert!(volume(empty).image.is_none(), "an empty image message requests no image");
    let mapped = volume(v1::Mount { uid_mappings: map(1, 0, 5), gid_mappings: map(2, 0, 5), ..bind() });
    assert_eq!((mapped.uid_mappings[0].host_id, mapped.gid_mappings[0].host_id), (1, 2));
    let options =
        ["noexec", "nosuid", "nodev", "rro", "relatime", "rrelatime", "nosymfollow"].map(str::to_owned).to_vec();
    assert_eq!(volume(v1::Mount { mount_options: options.clone(), ..bind() }).options, options);
    assert_eq!(volume(v1::Mount { propagation: 2, ..bind() }).propagation, Propagation::Bidirectional);
}

#[test]
fn invalid_mounts_are_refused_by_field() {
    let cases: [(v1::Mount, &str); 16] = [
        (v1::Mount { container_path: "in".into(), ..bind() }, "container_path"),
        (v1::Mount { container_path: "/".into(), ..bind() }, "container_path"),
        (v1::Mount { container_path: "/a/..".into(), ..bind() }, "container_path"),
        (v1::Mount { host_path: String::new(), ..bind() }, "host_path"),
        (v1::Mount { host_path: "../h".into(), ..bind() }, "host_path"),
        (v1::Mount { propagation: 7, ..bind() }, "propagation"),
        (v1::Mount { recursive_read_only: true, ..bind() }, "recursive_read_only"),
        (v1::Mount { recursive_read_only: true, readonly: true, propagation: 1, ..bind() }, "recursive_read_only"),
        (v1::Mount { image_sub_path: "x".into(), ..bind() }, "image_sub_path"),
        (v1::Mount { image_sub_path: "/x".into(), ..image() }, "image_sub_path"),
        (v1::Mount { image_sub_path: "a/../../b".into(), ..image() }, "image_sub_path"),
        (v1::Mount { host_path: "/host".into(), ..image() }, "host_path"),
        (v1::Mount { propagation: 1, ..image() }, "propagation"),
        (v1::Mount { uid_mappings: map(1, 0, 5), ..bind() }, "gidMappings"),
        (v1::Mount { uid_mappings: map(1, 0, 0), gid_mappings: map(1, 0, 1), ..bind() }, "uidMappings[0].length"),
        (
            v1::Mount { uid_mappings: map(1, 0, 1), gid_mappings: map(u32::MAX, 0, 2), ..bind() },
            "gidMappings[0].length",
        ),
    ];
    for (mount, field) in cases {
        assert_refused(with_mount(mount), &format!("config.mounts[0].{field}"));
    }
    for word in ["", "loop", "size=1", "rbind", "shared", "remount", "noexec,nosuid", "NOEXEC"] {
        let options = vec!["ro".to_owned(), word.to_owned()];
        assert_refused(with_mount(v1::Mount { mount_options: options, ..bind() }), "config.mounts[0].mount_options[1]");
    }
    let contradiction = v1::Mount { readonly: true, mount_options: vec!["rw".into()], ..bind() };
    assert_refused(with_mount(contradiction), "config.mounts[0].mount_options[0]");
    let device = v1::Device { host_path: "/dev/null".into(), permissions: "rwx".into(), ..Default::default() };
    assert_refused(v1::ContainerConfig { devices: vec![device], ..plain() }, "config.devices[0].permissions");
}

#[test]
fn cdi_devices_are_read_from_the_field_and_annotations() {
    let device = |name: &str| v1::CdiDevice { name: name.into() };
    let message = v1::ContainerConfig {
        cdi_devices: vec![device("v.com/a=1"), device("v.com/a=1")],
        annotations: [("cdi.k8s.io/plugin".to_owned(), "v.com/b=2,v.com/a=1".to_owned())].into(),
        ..plain()
    };
    assert_eq!(container(message).expect("valid").cdi_devices, ["v.com/a=1", "v.com/b=2"]);
    let invalid = v1::ContainerConfig { cdi_devices: vec![device("v.com/a=1"), device("gpu")], ..plain() };
    assert_refused(invalid, "config.CDI_devices[1].name");
    let invalid = [("cdi.k8s.io/x".to_owned(), "v.com/a=1,,".to_owned())].into();
    assert_refused(v1::ContainerConfig { annotations: invalid, ..plain() }, "config.annotations[cdi.k8s.io/x]");
}

#[test]
fn lists_of_paths_apply_as_they_are() {
    let missing = container(plain()).expect("valid").security;
    assert_eq!((missing.masked_paths, missing.readonly_paths), (None, None), "the defaults");
    let unmasked = container(with_security(|_| {})).expect("valid").security;
    assert_eq!((unmasked.masked_paths, unmasked.readonly_paths), (Some(vec![]), Some(vec![])), "procMount: Unmasked");
    let some = container(with_security(|s| s.masked_paths = vec!["/proc/kcore".into()])).expect("valid").security;
    assert_eq!(some.masked_paths, Some(vec!["/proc/kcore".to_owned()]));
    assert_refused(
        with_security(|s| s.readonly_paths = vec!["/proc/sys".into(), "rel".into()]),
        "config.linux.security_context.readonly_paths[1]",
    );
}

#[test]
#[allow(deprecated)]
fn profiles_have_one_of_three_types() {
    let at = "config.linux.security_context";
    let profile =
        |kind, reference: &str| Some(v1::SecurityProfile { profile_type: kind, localhost_ref: reference.to_owned() });
    let apparmor = |message: v1::ContainerConfig| container(message).expect("valid").security.apparmor;
    assert_eq!(apparmor(with_security(|_| {})), None);
    assert_eq!(apparmor(with_security(|s| s.apparmor = profile(0, ""))), None);
    assert_eq!(apparmor(with_security(|s| s.apparmor = profile(1, ""))).as_deref(), Some("unconfined"));
    assert_eq!(apparmor(with_security(|s| s.apparmor = profile(2, "localhost/mine"))).as_deref(), Some("mine"));
    assert_eq!(apparmor(with_security(|s| s.apparmor_profile = "localhost/mine".into())).as_deref(), Some("mine"));
    let privileged = with_security(|s| (s.privileged, s.apparmor) = (true, profile(2, "mine")));
    assert_eq!(apparmor(privileged).as_deref(), Some("unconfined"));
    assert_refused(with_security(|s| s.apparmor = profile(9, "")), &format!("{at}.apparmor.profile_type"));
    assert_refused(with_security(|s| s.apparmor = profile(0, "x")), &format!("{at}.apparmor.localhost_ref"));
    assert_refused(with_security(|s| s.apparmor = profile(2, "a b")), &format!("{at}.apparmor.localhost_ref"));
    assert_refused(with_security(|s| s.seccomp = profile(1, "/x")), &format!("{at}.seccomp.localhost_ref"));
    assert_refused(with_security(|s| s.seccomp = profile(2, "")), &format!("{at}.seccomp.localhost_ref"));
    let both = with_security(|s| {
        s.run_as_user = Some(v1::Int64Value { value: 1 });
        s.run_as_username = "www".into();
    });
    assert_refused(both, &format!("{at}.run_as_username"));
}

#[test]
fn invalid_ports_are_refused_by_field() {
    let port = |host_port, container_port, protocol, host_ip: &str| v1::PortMapping {
        protocol,
        container_port,
        host_port,
        host_ip: host_ip.to_owned(),
    };
    for (mapping, field) in [
        (port(65536, 80, 0, ""), "host_port"),
        (port(-1, 80, 0, ""), "host_port"),
        (port(80, 65536, 0, ""), "container_port"),
        (port(80, 0, 0, ""), "container_port"),
        (port(80, 80, 3, ""), "protocol"),
        (port(80, 80, 2, "node.local"), "host_ip"),
    ] {
        assert_pod_refused(|m| m.port_mappings = vec![mapping], &format!("config.port_mappings[0].{field}"));
    }
}

#[test]
fn paths_in_the_container_are_resolved_and_stay_inside() {
    use crate::config::field::path_inside;
    let resolved = |path| path_inside("f", path).map_err(|failure| failure.to_string());
    for (path, clean) in
        [("/a/../v", "/v"), ("/../../v", "/v"), ("/a/b/../../..", "/"), ("/v/", "/v/"), ("/a/./b//c", "/a/./b//c")]
    {
        assert_eq!(resolved(path).as_deref(), Ok(clean), "{path}");
    }
    for bad in ["", "v", "../v", "a/../../v", "/a\0b"] {
        assert!(resolved(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn link_local_name_servers_may_have_a_zone() {
    use crate::config::field::name_server;
    for good in ["1.2.3.4", "fe80::1", "fe80::1%eth0"] {
        name_server("f", good).unwrap_or_else(|_| panic!("{good}"));
    }
    for bad in ["", "x", "1.2.3.4%eth0", "fe80::1%", "fe80::1%a b", "fe80::1%a\nnameserver 6.6.6.6"] {
        assert!(name_server("f", bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_container_can_request_namespaces_of_the_node() {
    let namespaces = |network: i32, ipc: i32| {
        let options = v1::NamespaceOption { network, ipc, pid: 1, ..Default::default() };
        crate::config::namespace::of_container("at", &options).map(|namespaces| (namespaces.network, namespaces.ipc))
    };
    assert_eq!(namespaces(0, 0).ok(), Some((None, None)));
    assert_eq!(namespaces(2, 2).ok(), Some((Some(pod::SharedMode::Node), Some(pod::SharedMode::Node))));
    for (network, ipc) in [(1, 0), (0, 1), (3, 0), (0, 9)] {
        assert!(namespaces(network, ipc).is_err(), "{network} {ipc}");
    }
}
