use cri_proto::v1;

use crate::answer::{Outcome, Shared};

/// Which cgroup driver kubelet has to use.
pub(super) async fn answer(_: Shared, _: v1::RuntimeConfigRequest) -> Outcome<v1::RuntimeConfigResponse> {
    // SYSTEMD is the enum's zero: unset would tell kubelet to make slices.
    let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
    Ok(v1::RuntimeConfigResponse { linux: Some(linux) })
}
