//! `linux.sysctl`: kernel parameters that belong to a namespace of the container, and have no other property in the
//! spec.

use oci::NamespaceType;

use crate::{Error, error::During, namespaces::Namespaces, procfs::Procfs};

/// Kernel parameters of an IPC namespace (`ipc/ipc_sysctl.c`).
const IPC: [&str; 11] = [
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/msg_next_id",
    "kernel/sem",
    "kernel/sem_next_id",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
    "kernel/shm_next_id",
    "kernel/shm_rmid_forced",
];

/// Parameters to set: path below `/proc` and value.
#[derive(Debug, Default)]
pub(crate) struct Sysctls(Vec<(String, String)>);

impl Sysctls {
    pub(crate) fn parse(spec: &oci::Spec, namespaces: &Namespaces) -> Result<Self, Error> {
        let Some(linux) = spec.linux.as_ref().filter(|linux| !linux.sysctl.is_empty()) else {
            return Ok(Self::default());
        };
        let mut result = Vec::with_capacity(linux.sysctl.len());
        for (key, value) in &linux.sysctl {
            let path = to_path(key)?;
            check_names(key, &path, value, spec.domainname.as_deref())?;
            let kind = namespace_of(&path).ok_or_else(|| {
                Error::invalid(format!(
                    "linux.sysctl: {key} does not belong to a namespace; it would change the whole machine"
                ))
            })?;
            if !namespaces.has(kind) {
                let kind = kind.name();
                return Err(Error::invalid(format!(
                    "linux.sysctl: {key} needs a new or joined {kind} namespace; otherwise it would change the host"
                )));
            }
            result.push((format!("sys/{path}"), value.clone()));
        }
        Ok(Self(result))
    }

    /// Writes the parameters. Runs in the child, in its namespaces.
    pub(crate) fn apply(&self, proc: &Procfs) -> Result<(), Error> {
        for (path, value) in &self.0 {
            proc.write(path, value).during(|| format!("write {value:?} to /proc/{path}"))?;
        }
        Ok(())
    }
}

/// Refuses parameters that have their own property. As in runc and crun, `kernel.hostname` is refused, so that a spec
/// has only one host name. As in crun, `kernel.domainname` may repeat `domainname`, because that property was added
/// later.
fn check_names(key: &str, path: &str, value: &str, domainname: Option<&str>) -> Result<(), Error> {
    let property = match path {
        "kernel/hostname" => "hostname",
        "kernel/domainname" if domainname.is_some_and(|name| !name.is_empty() && name != value) => "domainname",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!(
        "linux.sysctl: {key} conflicts with the property {property} of the spec; set {property}"
    )))
}

/// Converts a key to a path as sysctl(8) does: the first separator decides the notation. In the notation with dots, a
/// slash stands for a dot in a name (`net.ipv4.conf.eth0/1.x`).
fn to_path(key: &str) -> Result<String, Error> {
    let dotted = key.find(['.', '/']).is_some_and(|at| key.as_bytes()[at] == b'.');
    let swap = |c| match c {
        '.' if dotted => '/',
        '/' if dotted => '.',
        c => c,
    };
    let path: String = key.chars().map(swap).collect();
    let invalid = path.split('/').any(|part| part.is_empty() || part == "." || part == "..") || path.contains('\0');
    if invalid {
        return Err(Error::invalid(format!("linux.sysctl: {key:?} is not the name of a kernel parameter")));
    }
    Ok(path)
}

fn namespace_of(path: &str) -> Option<NamespaceType> {
    if path.starts_with("net/") {
        Some(NamespaceType::Network)
    } else if IPC.contains(&path) || path.starts_with("fs/mqueue/") {
        Some(NamespaceType::Ipc)
    } else if path == "kernel/domainname" || path == "kernel/hostname" {
        Some(NamespaceType::Uts)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths() {
        assert_eq!(to_path("net.ipv4.ip_forward").unwrap(), "net/ipv4/ip_forward");
        assert_eq!(to_path("net/ipv4/ip_forward").unwrap(), "net/ipv4/ip_forward");
        assert_eq!(to_path("net.ipv4.conf.eth0/1.rp_filter").unwrap(), "net/ipv4/conf/eth0.1/rp_filter");
        for bad in ["", "net..x", "net/../kernel/panic", ".net", "net.ipv4.\0"] {
            assert!(to_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_spec_has_one_host_name() {
        let refused = |path: &str, name| check_names(path, path, "x", name).is_err();
        assert!(refused("kernel/hostname", None));
        assert!(refused("kernel/domainname", Some("y")));
        for name in [None, Some(""), Some("x")] {
            assert!(!refused("kernel/domainname", name), "{name:?}");
        }
    }

    #[test]
    fn each_parameter_has_its_namespace() {
        assert_eq!(namespace_of("net/core/somaxconn"), Some(NamespaceType::Network));
        assert_eq!(namespace_of("kernel/shmmax"), Some(NamespaceType::Ipc));
        assert_eq!(namespace_of("fs/mqueue/msg_max"), Some(NamespaceType::Ipc));
        assert_eq!(namespace_of("kernel/panic"), None);
        assert_eq!(namespace_of("vm/overcommit_memory"), None);
    }
}
