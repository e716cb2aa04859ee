use cri_proto::v1;

use crate::handler::{Outcome, Shared};

/// Returns the cgroup driver that kubelet has to use.
pub(super) async fn handle(_: Shared, _: v1::RuntimeConfigRequest) -> Outcome<v1::RuntimeConfigResponse> {
    // The enum's default is SYSTEMD, with which kubelet would create systemd slices.
    let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
    Ok(v1::RuntimeConfigResponse { linux: Some(linux) })
}
