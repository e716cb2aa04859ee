use futures_util::StreamExt;

use cri_proto::{encoded::Encoded, v1};
use prost::Message;

use super::{
    field::{self, container_attributes, nested, sandbox_attributes},
    *,
};
use crate::status::{
    container_stats as stats_of_container, samples, sandbox_stats as stats_of_sandbox, usage_of_container,
    usage_of_sandbox,
};

#[test]
fn a_row_encoded_in_parts_equals_the_message() {
    let stats = samples::pod();
    let container = &stats.containers[0];
    let usage = usage_of_container(container, "/data").encode_to_vec();
    let row = Row::from_encoded(&[&container_attributes(container), &usage]);
    assert_eq!(row, Row::encode(&stats_of_container(container, "/data")));

    let mut linux = usage_of_sandbox(&stats).encode_to_vec();
    nested(field::CONTAINERS, &[&container_attributes(container), &usage], &mut linux);
    let mut whole = Vec::new();
    nested(field::LINUX, &[&linux], &mut whole);
    let row = Row::from_encoded(&[&sandbox_attributes(&stats), &whole]);
    let list = cri_proto::encoded::ListPodSandboxStatsResponse::from(vec![row]).decode_rows().expect("a list");
    assert_eq!(list.stats, [stats_of_sandbox(&stats, "/data")]);
}

#[tokio::test]
async fn every_row_is_in_exactly_one_part() {
    let rows: Vec<Row> = (0..1000u32)
        .map(|number| {
            let id = format!("{number}-{}", "x".repeat(2000));
            Row::encode(&v1::PodSandbox { id, ..Default::default() })
        })
        .collect();
    let parts: Vec<Encoded<v1::StreamPodSandboxesResponse>> =
        in_parts(rows.clone().into()).map(|part| part.expect("a part")).collect().await;
    assert!(parts.len() > 5 && parts.iter().all(|part| part.encoded_len() < PART + 4096));
    let pods: Vec<_> = parts.iter().flat_map(|part| part.decode_rows().expect("a message").pod_sandboxes).collect();
    assert_eq!(pods.len(), 1000);
    assert!(pods.iter().enumerate().all(|(at, pod)| pod.id.starts_with(&format!("{at}-"))));
    let none: Vec<_> = in_parts::<v1::StreamPodSandboxesResponse>(Rows::default()).collect().await;
    assert!(none.is_empty(), "an empty list is an empty stream");
}
