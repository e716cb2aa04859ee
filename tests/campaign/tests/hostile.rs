//! The short form of the campaign of attackers.

use campaign_tests::hostile::{self, Plan};

#[tokio::test(flavor = "multi_thread")]
async fn every_attacker_at_once_harms_no_other_pod() {
    let faults = hostile::run(&Plan::short()).await.expect("the campaign runs");
    assert!(faults.is_empty(), "{faults:#?}");
}
