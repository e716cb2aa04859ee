//! Sysctls of namespaces. Which namespace a file under `/proc/sys` acts on is decided by the thread that opens it.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use rustix::{fs::Uid, thread::set_thread_res_uid};

use crate::Error;

/// Where a key is, when it belongs to a namespace the pod has of its own.
///
/// As in sysctl(8), the first separator tells how to read the key: `net.ipv4.conf.eth0/1.forwarding` is of dots, and a
/// slash in it stands for a dot in a name; `net/ipv4/conf/eth0.1/forwarding` is a path.
pub(crate) fn path(key: &str, own_net: bool, own_ipc: bool, own_uts: bool) -> Result<PathBuf, Error> {
    let fail = |reason: &str| Err(Error::Sysctl { key: key.to_owned(), reason: reason.to_owned() });
    let relative = match key.find(['.', '/']) {
        Some(at) if key.as_bytes()[at] == b'.' => key.chars().map(swap).collect(),
        Some(_) => key.to_owned(),
        None => return fail("it names no namespace's setting"),
    };
    if relative.split('/').any(|part| matches!(part, "" | "." | "..")) || relative.contains('\0') {
        return fail("it is not a valid key");
    }
    let ipc = ["kernel/shm", "kernel/msg", "fs/mqueue/"].iter().any(|head| relative.starts_with(head));
    if relative.starts_with("net/") {
        if !own_net {
            return fail("the pod shares the node's network; it would change the node");
        }
    } else if ipc || relative == "kernel/sem" {
        if !own_ipc {
            return fail("the pod shares the node's IPC namespace; it would change the node");
        }
    } else if relative == "kernel/domainname" {
        if !own_uts {
            return fail("the pod shares the node's UTS namespace; it would change the node");
        }
    } else if relative == "kernel/hostname" {
        return fail("the pod's host name is given by its config's hostname");
    } else {
        let namespaced = "net.*, kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, kernel.domainname";
        return fail(&format!("it does not belong to a namespace ({namespaced} do)"));
    }
    Ok(PathBuf::from("/proc/sys").join(relative))
}

fn swap(c: char) -> char {
    match c {
        '.' => '/',
        '/' => '.',
        other => other,
    }
}

/// `root`: of the user namespace that owns the namespaces. The kernel lets only it set those of IPC, whatever
/// capabilities another has; those of the network it lets their owner and whoever rules it set, with ids as the writer
/// knows them.
pub(crate) fn write_all(writes: &[(String, PathBuf, String)], root: Option<Uid>) -> Result<(), Error> {
    for (key, path, value) in writes {
        let write = || OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(value.as_bytes()));
        let written = match root.filter(|_| is_of_ipc(path)) {
            Some(root) => as_user(root, write),
            None => write(),
        };
        written.map_err(|e| Error::Sysctl { key: key.clone(), reason: format!("write {value:?}: {e}") })?;
    }
    Ok(())
}

fn is_of_ipc(path: &Path) -> bool {
    !path.starts_with("/proc/sys/net") && path != Path::new("/proc/sys/kernel/domainname")
}

/// With another effective user of this thread alone, and with none of its capabilities meanwhile.
fn as_user<T>(user: Uid, work: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let own = rustix::process::getuid();
    set_thread_res_uid(own, user, own)?;
    let done = work();
    // It was the real one all the time.
    set_thread_res_uid(own, own, own)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths() {
        let at = |key| path(key, true, true, true).map(|p| p.display().to_string()).map_err(|e| e.to_string());
        assert_eq!(at("net.ipv4.ip_forward").unwrap(), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(at("net.ipv4.conf.eth0/1.rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("net/ipv4/conf/eth0.1/rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("kernel.shm_rmid_forced").unwrap(), "/proc/sys/kernel/shm_rmid_forced");
        assert_eq!(at("fs.mqueue.msg_max").unwrap(), "/proc/sys/fs/mqueue/msg_max");
        assert_eq!(at("kernel.domainname").unwrap(), "/proc/sys/kernel/domainname");
    }

    #[test]
    fn what_is_the_nodes_is_refused() {
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
