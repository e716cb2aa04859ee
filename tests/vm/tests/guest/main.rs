//! Tests that run in the virtual machine: as root, and `rootless` as an unprivileged user with a systemd user instance.

/// Defines tests of cases on some of the runtimes only, if others are known to lack a feature.
macro_rules! tests_on {
    ([$($name:ident $runtime:ident),+] $cases:tt) => {
        $(mod $name {
            crate::tests_of!($runtime $cases);
        })+
    };
}

macro_rules! tests_of {
    ($runtime:ident ($($case:ident),+ $(,)?)) => {
        $(#[test]
        fn $case() {
            oci_tests::run(oci_tests::Runtime::$runtime, module_path!(), super::$case);
        })+
    };
}

pub(crate) use {tests_of, tests_on};

mod apparmor;
mod cgroup_driver;
mod critest;
mod driver_cost;
mod kubelet;
mod labelled_pod;
mod node;
mod rootless;
mod scope_oom_kills;
mod selinux;
mod stock_kernel;
mod stuck_init;
mod systemd;
