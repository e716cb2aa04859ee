//! Sysctls of namespaces. The thread that opens a file under `/proc/sys` determines the namespace the file refers to.

use rustix::{fs::Uid, thread::set_thread_res_uid};

use crate::{Error, write_sysctl};

/// Returns the path below `/proc/sys` of a key if it belongs to a namespace that the pod has of its own.
///
/// As in sysctl(8), the first separator determines the format: `net.ipv4.conf.eth0/1.forwarding` is separated by dots,
/// and a slash stands for a dot within a name; `net/ipv4/conf/eth0.1/forwarding` is a path.
pub(crate) fn path(key: &str, own_net: bool, own_ipc: bool, own_uts: bool) -> Result<String, Error> {
    let fail = |reason: &str| Err(Error::Sysctl { key: key.to_owned(), reason: reason.to_owned() });
    let relative = match key.find(['.', '/']) {
        Some(at) if key.as_bytes()[at] == b'.' => key.chars().map(swap).collect(),
        Some(_) => key.to_owned(),
        None => return fail("not a sysctl of a namespace"),
    };
    if relative.split('/').any(|part| matches!(part, "" | "." | "..")) || relative.contains('\0') {
        return fail("not a valid key");
    }
    let ipc = ["kernel/shm", "kernel/msg", "fs/mqueue/"].iter().any(|head| relative.starts_with(head));
    if relative.starts_with("net/") {
        if !own_net {
            return fail("the pod uses the node's network namespace, so this would change the node");
        }
    } else if ipc || relative == "kernel/sem" {
        if !own_ipc {
            return fail("the pod uses the node's IPC namespace, so this would change the node");
        }
    } else if relative == "kernel/domainname" {
        if !own_uts {
            return fail("the pod uses the node's UTS namespace, so this would change the node");
        }
    } else if relative == "kernel/hostname" {
        return fail("set the host name with the field hostname of the pod's configuration instead");
    } else {
        let namespaced = "net.*, kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, kernel.domainname";
        return fail(&format!("not a sysctl of a namespace; allowed: {namespaced}"));
    }
    Ok(relative)
}

fn swap(c: char) -> char {
    match c {
        '.' => '/',
        '/' => '.',
        other => other,
    }
}

/// Writes the values. `root` is the root user of the user namespace that owns the namespaces. The kernel permits only
/// this user to set sysctls of the IPC namespace, regardless of capabilities. Sysctls of the network namespace can also
/// be set by privileged users outside, with ids as the writer's user namespace has them.
pub(crate) fn write_all(writes: &[(String, String, String)], root: Option<Uid>) -> Result<(), Error> {
    for (key, path, value) in writes {
        let write = || write_sysctl(path, value);
        let written = match root.filter(|_| is_of_ipc(path)) {
            Some(root) => as_user(root, write),
            None => write(),
        };
        written.map_err(|e| Error::Sysctl { key: key.clone(), reason: format!("write {value:?}: {e}") })?;
    }
    Ok(())
}

fn is_of_ipc(path: &str) -> bool {
    !path.starts_with("net/") && path != "kernel/domainname"
}

/// Runs work with another effective user of only this thread; the thread has no capabilities during that time.
fn as_user<T>(user: Uid, work: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let real = rustix::process::getuid();
    set_thread_res_uid(real, user, real)?;
    let outcome = work();
    // Restores the real user, which did not change.
    set_thread_res_uid(real, real, real)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths() {
        let at = |key| path(key, true, true, true).map_err(|e| e.to_string());
        assert_eq!(at("net.ipv4.ip_forward").unwrap(), "net/ipv4/ip_forward");
        assert_eq!(at("net.ipv4.conf.eth0/1.rp_filter").unwrap(), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("net/ipv4/conf/eth0.1/rp_filter").unwrap(), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("kernel.shm_rmid_forced").unwrap(), "kernel/shm_rmid_forced");
        assert_eq!(at("fs.mqueue.msg_max").unwrap(), "fs/mqueue/msg_max");
        assert_eq!(at("kernel.domainname").unwrap(), "kernel/domainname");
    }

    #[test]
    fn sysctls_of_the_node_are_refused() {
        for key in [
            "vm.swappiness",
            "kernel.panic",
            "kernel.hostname",
            "fs.file-max",
            "net",
            "net...x",
            "net/../kernel/panic",
            "",
        ] {
            assert!(path(key, true, true, true).is_err(), "{key:?}");
        }
        assert!(path("net.ipv4.ip_forward", false, true, true).is_err());
        assert!(path("kernel.sem", true, false, true).is_err());
        assert!(path("kernel.domainname", true, true, false).is_err());
    }
}
