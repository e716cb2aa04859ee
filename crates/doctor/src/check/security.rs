//! AppArmor, SELinux, capabilities.

use crate::{Node, finding::Verdict};

/// Capabilities without which nothing works: name and number (capability.h).
const NEEDED: [(&str, u32); 8] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_NET_ADMIN", 12),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_MKNOD", 27),
];
const SYS_RESOURCE: u32 = 24;
/// The profile of RuntimeDefault.
const PROFILE: &str = "pinion-default";

pub(super) fn apparmor(node: &Node) -> Vec<Verdict> {
    if node.host.value("/sys/module/apparmor/parameters/enabled").as_deref() != Some("Y") {
        return vec![Verdict::ok("AppArmor is not enabled")];
    }
    let profiles = node.host.read("/sys/kernel/security/apparmor/profiles");
    let is_loaded =
        profiles.as_deref().is_some_and(|text| text.lines().any(|line| line.starts_with(&format!("{PROFILE} "))));
    vec![match (is_loaded, node.host.program("apparmor_parser"), profiles.is_some()) {
        (true, ..) => Verdict::ok(format!("the profile {PROFILE} is loaded")),
        (false, Some(_), _) => Verdict::ok(format!("the daemon loads the profile {PROFILE} when it starts")),
        (false, None, false) => {
            Verdict::warning("AppArmor is enabled, apparmor_parser is missing, and securityfs is not mounted")
                .fix("apt-get install apparmor; mount -t securityfs securityfs /sys/kernel/security")
        }
        (false, None, true) => {
            Verdict::problem(format!("AppArmor is enabled, but apparmor_parser is missing and {PROFILE} is not loaded"))
                .fix("apt-get install apparmor; systemctl restart pinion")
        }
    }]
}

pub(super) fn selinux(node: &Node) -> Vec<Verdict> {
    let data = node.settings.data_dir.display();
    vec![match node.host.value("/sys/fs/selinux/enforce").as_deref() {
        None => Verdict::ok("SELinux is not enabled"),
        Some("0") => Verdict::ok("SELinux is permissive"),
        Some(_) if !node.host.exists("/etc/selinux/targeted/contexts/lxc_contexts") => {
            Verdict::warning("SELinux is enforcing, and the contexts of containers are not installed")
                .fix("dnf install container-selinux")
        }
        Some(_) => Verdict::notice("SELinux is enforcing: the data directory needs the type container_var_lib_t")
            .fix(format!("semanage fcontext -a -t container_var_lib_t '{data}(/.*)?' && restorecon -R {data}")),
    }]
}

pub(super) fn capabilities(node: &Node) -> Vec<Verdict> {
    let status = node.host.read("/proc/self/status").unwrap_or_default();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let Some(bounding) = bounding.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) else {
        return vec![Verdict::notice("the capabilities cannot be read")];
    };
    let has = |number: u32| bounding & 1 << number != 0;
    let missing: Vec<&str> = NEEDED.iter().filter(|(_, number)| !has(*number)).map(|(name, _)| *name).collect();
    vec![match (missing.is_empty(), has(SYS_RESOURCE)) {
        (false, _) => Verdict::problem(format!("root lacks {}", missing.join(", ")))
            .fix("if this node is a container: run it privileged"),
        (true, false) => Verdict::notice("root lacks CAP_SYS_RESOURCE: negative oom_score_adj values are raised"),
        (true, true) => Verdict::ok("root has all capabilities that are needed"),
    }]
}
