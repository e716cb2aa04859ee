use cri_proto::v1;

use crate::handler::{Outcome, Shared};

/// Returns the cgroup driver that kubelet has to use.
pub(super) async fn handle(state: Shared, _: v1::RuntimeConfigRequest) -> Outcome<v1::RuntimeConfigResponse> {
    let driver = match state.engine.cgroup_driver() {
        pod::CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
        pod::CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
    };
    let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() };
    Ok(v1::RuntimeConfigResponse { linux: Some(linux) })
}
