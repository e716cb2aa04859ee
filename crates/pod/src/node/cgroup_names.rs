//! Names of the cgroups of pods and containers, by driver.
//!
//! ```text
//!            parent of the request                 pod without a parent        container            init of the pod
//! cgroupfs   /kubepods/burstable/pod<uid>          /pinion/<pod>               <id>                 <pod>-init
//! systemd    /kubepods.slice/…/…-pod<uid>.slice    /pinion.slice/pinion-pod<pod>.slice
//!                                                                              pinion-<id>.scope    pinion-<pod>.scope
//! ```
//!
//! cAdvisor finds the id of a container at the end of the name, before `.scope`.

use cgroup::systemd::expand_slice;

use crate::{CgroupDriver, Error};

/// What the names of scopes begin with.
pub(crate) const SCOPE_PREFIX: &str = "pinion-";

/// Converts the parent cgroup that a request names to a path. With cgroupfs a relative path begins at the root; with
/// systemd the last component counts, as in containerd, because it contains the names of the slices above.
///
/// # Errors
/// `InvalidArgument`: the path belongs to the other driver, or is not valid.
pub(crate) fn parent(driver: CgroupDriver, parent: &str) -> Result<String, Error> {
    let field = "config.linux.cgroup_parent";
    let refused = |cause: &str| Err(Error::invalid(format!("{field}: {parent:?} {cause}")));
    let last = parent.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match (driver, last.ends_with(".slice")) {
        (CgroupDriver::Cgroupfs, true) => refused(
            "is a systemd slice, but the cgroup driver of this node is cgroupfs; set `cgroupDriver: cgroupfs` for the \
             kubelet, or `driver = \"systemd\"` in the table [cgroup] of Pinion's configuration",
        ),
        (CgroupDriver::Systemd, false) => refused(
            "is not a systemd slice, but the cgroup driver of this node is systemd; set `cgroupDriver: systemd` for the \
             kubelet, or `driver = \"cgroupfs\"` in the table [cgroup] of Pinion's configuration",
        ),
        (CgroupDriver::Cgroupfs, false) => {
            let path = cgroup::GroupPath::parse(&format!("/{parent}"));
            path.map(|path| path.to_string()).map_err(|e| Error::invalid(format!("{field}: {e}")))
        }
        (CgroupDriver::Systemd, true) => {
            expand_slice(last).map(|path| path.to_string()).map_err(|e| Error::invalid(format!("{field}: {e}")))
        }
    }
}

/// Returns the path of a pod's cgroup below the default parent.
pub(crate) fn pod(driver: CgroupDriver, default_parent: &str, pod: &str) -> String {
    let default_parent = default_parent.trim_matches('/');
    match driver {
        CgroupDriver::Cgroupfs => format!("/{default_parent}/{pod}"),
        CgroupDriver::Systemd => {
            let slice = format!("{}-pod{pod}.slice", slice_stem(default_parent));
            // The configuration was checked.
            expand_slice(&slice).map_or_else(|_| format!("/{slice}"), |path| path.to_string())
        }
    }
}

/// Returns the name of a container's cgroup.
pub(crate) fn container(driver: CgroupDriver, id: &str) -> String {
    match driver {
        CgroupDriver::Cgroupfs => id.to_owned(),
        CgroupDriver::Systemd => format!("{SCOPE_PREFIX}{id}.scope"),
    }
}

/// Returns the name of the cgroup of a pod's init.
pub(crate) fn init(driver: CgroupDriver, pod: &str) -> String {
    match driver {
        CgroupDriver::Cgroupfs => format!("{pod}-init"),
        CgroupDriver::Systemd => format!("{SCOPE_PREFIX}{pod}.scope"),
    }
}

/// Returns the pattern of the slices of pods that name no parent.
pub(crate) fn pod_slices(default_parent: &str) -> String {
    format!("{}-pod*.slice", slice_stem(default_parent.trim_matches('/')))
}

/// Returns the id of the pod or container that a unit belongs to.
pub(crate) fn owner_of_unit(name: &str) -> Option<&str> {
    let stem = match name.strip_suffix(".scope") {
        Some(stem) => stem.strip_prefix(SCOPE_PREFIX)?,
        None => name.strip_suffix(".slice")?.rsplit_once("-pod")?.1,
    };
    (stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(stem)
}

/// Returns the name of the default parent's slice without `.slice`: `a-b` of `/a/b`, and of `a-b.slice`. A dash in a
/// name of the path is an underscore in that of the slice, as in the kubelet's slices.
fn slice_stem(default_parent: &str) -> String {
    let last = default_parent.rsplit('/').next().unwrap_or_default();
    match last.strip_suffix(".slice") {
        Some(stem) => stem.to_owned(),
        None => default_parent.split('/').map(|name| name.replace('-', "_")).collect::<Vec<_>>().join("-"),
    }
}

#[cfg(test)]
mod tests {
    use CgroupDriver::{Cgroupfs, Systemd};

    use super::*;

    #[test]
    fn parents_of_requests_are_resolved_by_driver() {
        for (driver, text, path) in [
            (Cgroupfs, "/kubepods/burstable/pod1/", "/kubepods/burstable/pod1"),
            (Cgroupfs, "kubepods/pod1", "/kubepods/pod1"),
            (Systemd, "kubepods-burstable.slice", "/kubepods.slice/kubepods-burstable.slice"),
            (Systemd, "/kubepods.slice/kubepods-a.slice", "/kubepods.slice/kubepods-a.slice"),
        ] {
            assert_eq!(parent(driver, text).expect(text), path);
        }
        for (driver, text) in [(Cgroupfs, "/kubepods.slice"), (Systemd, "/kubepods/pod1"), (Systemd, "relative")] {
            let error = parent(driver, text).expect_err(text);
            let names_both = error.message.contains("cgroupDriver") && error.message.contains("[cgroup]");
            assert!(names_both && error.kind == crate::ErrorKind::InvalidArgument, "{error}");
        }
        for (driver, text) in [(Cgroupfs, "/a/../b"), (Cgroupfs, "/"), (Systemd, "-.slice"), (Systemd, "a--b.slice")] {
            let error = parent(driver, text).expect_err(text);
            assert!(error.message.contains("config.linux.cgroup_parent"), "{error}");
        }
    }

    #[test]
    fn a_unit_names_its_owner() {
        let id = "0123456789abcdef".repeat(4);
        for (parent, slice) in [("/pinion", "pinion"), ("/my-pods/a", "my_pods-a"), ("x-y.slice", "x-y")] {
            let path = pod(Systemd, parent, &id);
            assert!(path.ends_with(&format!("/{slice}-pod{id}.slice")), "{path}");
            assert_eq!(owner_of_unit(path.rsplit('/').next().expect("a name")), Some(id.as_str()));
        }
        assert_eq!(pod(Cgroupfs, "/pinion", "1"), "/pinion/1");
        assert_eq!(owner_of_unit(&container(Systemd, &id)), Some(id.as_str()));
        assert_eq!(owner_of_unit(&init(Systemd, &id)), Some(id.as_str()));
        for other in ["pinion-1.scope", "pinion.slice", "kubepods-pod1.slice", "pinion.service"] {
            assert_eq!(owner_of_unit(other), None);
        }
    }
}
