//! The test cases, by subject.

mod basics;
mod clocks;
mod credentials;
mod escapes;
mod files;
mod lifecycle;
mod mappings;
mod mount_namespaces;
mod mount_options;
mod namespaces;
mod net_devices;
mod notify;
mod programs;
mod refused;
mod rootless;
mod staging;
mod user_namespaces;

use crate::Case;

/// Returns every case.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    [
        basics::CASES,
        programs::CASES,
        credentials::CASES,
        escapes::CASES,
        files::CASES,
        lifecycle::CASES,
        namespaces::CASES,
        net_devices::CASES,
        notify::CASES,
        refused::CASES,
        rootless::CASES,
        staging::CASES,
        clocks::CASES,
        mappings::CASES,
        mount_namespaces::CASES,
        mount_options::CASES,
        user_namespaces::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
