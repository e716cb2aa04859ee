//! The short form of the attack campaign.

use campaign_tests::hostile::{self, Plan};

#[tokio::test(flavor = "multi_thread")]
async fn all_attackers_at_once_affect_no_other_pod() {
    let faults = hostile::run(&Plan::short()).await.expect("run the campaign");
    assert!(faults.is_empty(), "{faults:#?}");
}
