//! The JSON of messages about containers is a contract between programs of different versions.

use std::collections::BTreeMap;

use super::*;
use crate::{Envelope, Reply, Role};

/// What version 0.1.0 wrote for a container with all optional fields.
const FULL: &str = include_str!("holding-full.json");
/// The same for a container without any.
const BARE: &str = include_str!("holding-bare.json");
/// An `Adopt` and a reply to `Inventory` with these containers.
const ADOPT: &str = include_str!("adopt.json");
const INVENTORY: &str = include_str!("inventory.json");

fn hooks() -> Box<PendingHooks> {
    let hook =
        oci::Hook { path: "/bin/hook".into(), args: vec!["hook".into()], timeout: Some(5), ..Default::default() };
    Box::new(PendingHooks {
        hooks: oci::Hooks { poststop: vec![hook], ..Default::default() },
        state: oci::State {
            oci_version: "1.3.0".into(),
            id: "web".into(),
            bundle: "/run/pinion/container/web".into(),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            ..Default::default()
        },
    })
}

fn full() -> Holding {
    let container = ContainerDescription {
        id: "web".into(),
        sandbox: "pod".into(),
        cgroup: "/kubepods/pod/web".into(),
        pid: 4_000_000,
        start_time: 1 << 40,
        log: LogOptions { line_max: 16384, awaited: true, limit: None },
        hooks: Some(hooks()),
        user_namespace: Some(true),
        runtime: None,
        external: false,
    };
    let status = ExitStatus { code: Some(137), signal: Some(9), oom_killed: true, at: u64::MAX };
    Holding { container, state: HoldingState::Exited(status) }
}

fn bare() -> Holding {
    let container = ContainerDescription { id: "pod".into(), ..ContainerDescription::default() };
    Holding { container, state: HoldingState::Running }
}

fn adopt() -> Envelope {
    Envelope::Request { seq: 7, body: Box::new(Request::Adopt(Adopt { holding: full() })), roles: vec![Role::Log] }
}

fn inventory() -> Envelope {
    Envelope::Reply { seq: 7, body: Ok(Reply::Holding(Box::new(bare()))), roles: Vec::new() }
}

/// `Holding` of version 0.1.0, which is on the other side of an upgrade.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PreviousHolding {
    id: String,
    sandbox: String,
    cgroup: String,
    pid: u32,
    start_time: u64,
    log: LogOptions,
    state: HoldingState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hooks: Option<Box<PendingHooks>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_namespace: Option<bool>,
}

/// Parses JSON, so that the order of members does not matter.
fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn messages_about_containers_have_the_json_of_version_0_1_0() {
    let json = |message| serde_json::to_value(message).expect("JSON");
    assert_eq!(json(adopt()), value(ADOPT));
    assert_eq!(json(inventory()), value(INVENTORY));
    for (holding, sample) in [(full(), FULL), (bare(), BARE)] {
        assert_eq!(serde_json::to_value(&holding).expect("JSON"), value(sample));
        assert_eq!(serde_json::from_str::<Holding>(sample).expect("a holding"), holding);
    }
}

#[test]
fn version_0_1_0_reads_messages_about_containers() {
    for (holding, sample) in [(full(), FULL), (bare(), BARE)] {
        let text = serde_json::to_string(&holding).expect("JSON");
        assert_eq!(text.len(), sample.len(), "a message must not become longer: {text}");
        let read: PreviousHolding = serde_json::from_str(&text).expect("a holding");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), sample);
    }
}
