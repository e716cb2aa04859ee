//! Users, capabilities, seccomp.

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![
    ids_and_umask,
    default_capabilities,
    a_user_has_no_effective_capabilities,
    ambient,
    capabilities_that_the_host_lacks,
    new_privileges,
    seccomp_before_and_after,
    personality,
    stdio_belongs_to_the_user,
];

/// A profile that fails uname with errno 99 and allows everything else.
fn no_uname() -> oci::Seccomp {
    serde_json::from_value(serde_json::json!({
        "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{"names": ["uname"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99}],
    }))
    .expect("a profile")
}

fn status(node: &Node, field: &str, change: impl FnOnce(&mut oci::Spec)) -> String {
    let out = node.shell(&format!("grep -E '^{field}:' /proc/self/status | cut -f2"), change);
    assert_eq!(out.code, 0, "{out:?}");
    out.stdout
}

fn ids_and_umask(node: &Node) {
    let out = node.shell("id; umask; echo $HOME", |spec| {
        let user = &mut spec.process.as_mut().expect("process").user;
        (user.uid, user.gid, user.umask, user.additional_gids) = (33, 44, Some(0o27), vec![5, 6]);
    });
    assert_eq!(out.stdout, "uid=33(web) gid=44 groups=5,6\n0027\n/www", "{}", out.stderr);
}

fn default_capabilities(node: &Node) {
    for field in ["CapBnd", "CapEff", "CapPrm"] {
        assert_eq!(status(node, field, |_| ()), "00000000a80425fb", "{field}");
    }
    for field in ["CapInh", "CapAmb"] {
        assert_eq!(status(node, field, |_| ()), "0000000000000000", "{field}");
    }
}

fn a_user_has_no_effective_capabilities(node: &Node) {
    let user = |spec: &mut oci::Spec| spec.process.as_mut().expect("process").user.uid = 1000;
    assert_eq!(status(node, "CapEff", user), "0000000000000000");
    assert_eq!(status(node, "CapBnd", user), "00000000a80425fb");
}

fn ambient(node: &Node) {
    let change = |spec: &mut oci::Spec| {
        let process = spec.process.as_mut().expect("process");
        process.user.uid = 1000;
        let sets = process.capabilities.as_mut().expect("capabilities");
        sets.inheritable = vec!["CAP_NET_BIND_SERVICE".into()];
        sets.ambient = sets.inheritable.clone();
    };
    assert_eq!(status(node, "CapEff", change), "0000000000000400");
}

/// Requesting more capabilities than root itself has is not an error.
fn capabilities_that_the_host_lacks(node: &Node) {
    let mut spec = bundle::spec(&["/bin/grep", "CapEff", "/proc/self/status"]);
    let sets = spec.process.as_mut().expect("process").capabilities.as_mut().expect("capabilities");
    for set in [&mut sets.bounding, &mut sets.effective, &mut sets.permitted] {
        set.extend(["CAP_SYS_RESOURCE".to_owned(), "CAP_SYS_ADMIN".to_owned()]);
    }
    spec.process.as_mut().expect("process").oom_score_adj = Some(-500);
    let out = node.run(spec, node.inputs()).expect("runs");
    assert_eq!(out.code, 0);
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).expect("CapPrm");
    let permitted = u64::from_str_radix(permitted, 16).expect("a number");
    let expected = (0xa804_25fb_u64 | 1 << 24 | 1 << 21) & permitted;
    assert_eq!(out.stdout, format!("CapEff:\t{expected:016x}"));
}

fn new_privileges(node: &Node) {
    assert_eq!(status(node, "NoNewPrivs", |_| ()), "1");
    let allow = |spec: &mut oci::Spec| spec.process.as_mut().expect("process").no_new_privileges = false;
    assert_eq!(status(node, "NoNewPrivs", allow), "0");
}

fn seccomp_before_and_after(node: &Node) {
    for no_new_privileges in [true, false] {
        let change = |spec: &mut oci::Spec| {
            spec.process.as_mut().expect("process").no_new_privileges = no_new_privileges;
            spec.linux.as_mut().expect("linux").seccomp = Some(no_uname());
        };
        assert_eq!(status(node, "Seccomp", change), "2");
        let out = node.shell("uname; exit 7", change);
        assert_eq!((out.stdout.as_str(), out.code), ("", 7), "uname is refused: {out:?}");
    }
    let user = |spec: &mut oci::Spec| {
        let process = spec.process.as_mut().expect("process");
        (process.no_new_privileges, process.user.uid) = (false, 1000);
        spec.linux.as_mut().expect("linux").seccomp = Some(no_uname());
    };
    assert_eq!(status(node, "Seccomp", user), "2");
    assert_eq!(status(node, "CapPrm", user), "0000000000000000");
}

fn personality(node: &Node) {
    let out = node.shell("uname -m", |spec| {
        spec.linux.as_mut().expect("linux").personality =
            Some(oci::Personality { domain: "LINUX32".into(), flags: Vec::new() });
    });
    assert_eq!(out.stdout, "i686");
}

fn stdio_belongs_to_the_user(node: &Node) {
    let out = node.shell("stat -Lc %u /proc/self/fd/1; echo again > /dev/stdout", |spec| {
        spec.process.as_mut().expect("process").user.uid = 1000;
    });
    assert_eq!(out.stdout, "1000\nagain", "{}", out.stderr);
}
