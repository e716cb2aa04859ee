//! Names of the cgroups of pods and containers, by driver.
//!
//! ```text
//!            parent of the request                 pod without a parent        container            init of the pod
//! cgroupfs   /kubepods/burstable/pod<uid>          /pinion/<pod>               <id>                 <pod>-init
//! systemd    /kubepods.slice/…/…-pod<uid>.slice    /pinion.slice/pinion-pod<pod>.slice
//!                                                                              pinion-<id>.scope    pinion-<pod>.scope
//! ```
//!
//! With [`CgroupNames::Crio`]:
//!
//! ```text
//!            container                  network of the pod
//! cgroupfs   crio-<id>.scope            crio-<pod>.scope
//! systemd    crio-pinion-<id>.scope     crio-<pod>.scope (not a unit: systemd has no scope without a process)
//! ```
//!
//! cAdvisor takes a cgroup for one of CRI-O if its name begins with `crio` and contains 64 hex digits. The kubelet finds
//! the id of a container after the last dash of the name, if that ends with `.scope`.

use cgroup::systemd::expand_slice;

use crate::{CgroupDriver, CgroupNames, Error};

/// What the names of scopes begin with.
pub(crate) const SCOPE_PREFIXES: [&str; 2] = [SCOPE_PREFIX, CRIO_SCOPE_PREFIX];
const SCOPE_PREFIX: &str = "pinion-";
const CRIO_SCOPE_PREFIX: &str = "crio-pinion-";
/// What the names of cgroups that are not units begin with for cAdvisor.
const CRIO_PREFIX: &str = "crio-";
/// Number of digits of the id of a pod or container.
const ID_LENGTH: usize = 64;

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
            let slice = pod_slice(default_parent, pod);
            // The configuration was checked.
            expand_slice(&slice).map_or_else(|_| format!("/{slice}"), |path| path.to_string())
        }
    }
}

/// Returns the name of a container's cgroup.
pub(crate) fn container(driver: CgroupDriver, names: CgroupNames, id: &str) -> String {
    match (driver, names) {
        (CgroupDriver::Cgroupfs, CgroupNames::Plain) => id.to_owned(),
        (CgroupDriver::Systemd, CgroupNames::Plain) => format!("{SCOPE_PREFIX}{id}.scope"),
        (CgroupDriver::Cgroupfs, CgroupNames::Crio) => format!("{CRIO_PREFIX}{id}.scope"),
        (CgroupDriver::Systemd, CgroupNames::Crio) => format!("{CRIO_SCOPE_PREFIX}{id}.scope"),
    }
}

/// Returns the name of the cgroup for which cAdvisor reports the network metrics of a pod.
pub(crate) fn network(pod: &str) -> String {
    format!("{CRIO_PREFIX}{pod}.scope")
}

/// Returns the name of the empty cgroup that keeps controllers enabled in a pod's slice. It does not have processes and is
/// not a unit; cAdvisor ignores names that end with `.mount`.
pub(crate) fn holder(pod: &str) -> String {
    format!("{SCOPE_PREFIX}{pod}.mount")
}

/// Returns the name of the cgroup of a pod's init.
pub(crate) fn init(driver: CgroupDriver, pod: &str) -> String {
    match driver {
        CgroupDriver::Cgroupfs => format!("{pod}-init"),
        CgroupDriver::Systemd => format!("{SCOPE_PREFIX}{pod}.scope"),
    }
}

/// Returns the name of the slice of pods that name no parent.
pub(crate) fn parent_slice(default_parent: &str) -> String {
    format!("{}.slice", slice_stem(default_parent.trim_matches('/')))
}

/// Checks the default parent of the configuration.
///
/// # Errors
/// `InvalidArgument`: with the driver systemd, the names of the slices of pods below it would not be valid.
pub(crate) fn check_default_parent(driver: CgroupDriver, default_parent: &str) -> Result<(), Error> {
    let longest = pod_slice(default_parent.trim_matches('/'), &"0".repeat(ID_LENGTH));
    match (driver, expand_slice(&longest)) {
        (CgroupDriver::Systemd, Err(error)) => Err(Error::invalid(format!(
            "cgroup_parent: {default_parent:?} cannot be a slice, which the cgroup driver systemd needs: {error}; use \
             letters, digits and _ in its names"
        ))),
        _ => Ok(()),
    }
}

fn pod_slice(default_parent: &str, pod: &str) -> String {
    format!("{}-pod{pod}.slice", slice_stem(default_parent))
}

/// Returns the pattern of the slices of pods that name no parent.
pub(crate) fn pod_slices(default_parent: &str) -> String {
    format!("{}-pod*.slice", slice_stem(default_parent.trim_matches('/')))
}

/// Returns the id of the pod or container that a unit belongs to.
pub(crate) fn owner_of_unit(name: &str) -> Option<&str> {
    let stem = match name.strip_suffix(".scope") {
        Some(stem) => SCOPE_PREFIXES.iter().find_map(|prefix| stem.strip_prefix(prefix))?,
        None => name.strip_suffix(".slice")?.rsplit_once("-pod")?.1,
    };
    is_id(stem).then_some(stem)
}

/// Returns the id of the pod or container that a cgroup named by [`container`], [`init`], [`network`] or [`holder`]
/// belongs to, unless the name begins with the id.
pub(crate) fn owner(name: &str) -> Option<&str> {
    let network = || name.strip_suffix(".scope")?.strip_prefix(CRIO_PREFIX);
    let holder = || name.strip_suffix(".mount")?.strip_prefix(SCOPE_PREFIX);
    owner_of_unit(name).or_else(|| network().or_else(holder).filter(|id| is_id(id)))
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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
    use CgroupNames::{Crio, Plain};

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
        let long = format!("{}.slice", "a".repeat(250));
        let slices =
            ["-.slice", ".slice", "-a.slice", "a-.slice", "a--b.slice", "a b.slice", "a@b.slice", "a/ü.slice", &long];
        for (driver, text) in [(Cgroupfs, "/a/../b"), (Cgroupfs, "/")].into_iter().chain(slices.map(|s| (Systemd, s))) {
            let error = parent(driver, text).expect_err(text);
            assert!(error.message.contains("config.linux.cgroup_parent"), "{error}");
            assert_eq!(error.kind, crate::ErrorKind::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn a_default_parent_that_cannot_be_a_slice_is_refused() {
        for text in ["/pinion", "/my-pods/a", "x-y.slice"] {
            assert!(check_default_parent(Systemd, text).is_ok(), "{text}");
        }
        for text in ["/my pods", "/a@b", "/a/b--c.slice", "-.slice"] {
            let error = check_default_parent(Systemd, text).expect_err(text);
            assert!(error.message.starts_with("cgroup_parent: "), "{error}");
            assert!(check_default_parent(Cgroupfs, text).is_ok(), "{text}");
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
        assert_eq!(owner_of_unit(&container(Systemd, Plain, &id)), Some(id.as_str()));
        assert_eq!(owner_of_unit(&container(Systemd, Crio, &id)), Some(id.as_str()));
        assert_eq!(owner_of_unit(&init(Systemd, &id)), Some(id.as_str()));
        for other in ["pinion-1.scope", "pinion.slice", "kubepods-pod1.slice", "pinion.service"] {
            assert_eq!(owner_of_unit(other), None);
        }
    }

    #[test]
    fn names_for_cadvisor_begin_with_crio_and_end_with_the_id() {
        let id = "0123456789abcdef".repeat(4);
        for name in [container(Cgroupfs, Crio, &id), container(Systemd, Crio, &id), network(&id)] {
            let stem = name.strip_prefix("crio-").and_then(|name| name.strip_suffix(".scope")).expect("a name");
            assert_eq!(stem.rsplit('-').next(), Some(id.as_str()));
            assert_eq!(owner(&name), Some(id.as_str()));
        }
        // These are directories, of which systemd knows nothing.
        for name in [container(Cgroupfs, Crio, &id), network(&id), holder(&id)] {
            assert_eq!((owner(&name), owner_of_unit(&name)), (Some(id.as_str()), None));
        }
        assert_eq!(owner("crio-1.scope"), None);
    }
}
