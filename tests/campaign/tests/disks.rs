//! The short form of the disk fault campaign: one case of each role.

use campaign_tests::disks::{self, Plan};

async fn case(name: &str, kill: bool) {
    let faults = disks::run(&Plan::short(name, kill)).await.expect("run the campaign");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_log_disk_affects_no_other_pod_and_loses_no_line() {
    case("log-frozen", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_data_disk_affects_no_running_pod() {
    case("data-full", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_state_directory_affects_no_running_pod() {
    case("state-full", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_volume_affects_no_other_pod() {
    case("volume-frozen", false).await;
}
