//! The JSON of messages about containers is a contract between programs of different versions.

use std::collections::BTreeMap;

use super::*;

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
    Holding {
        id: "web".into(),
        sandbox: "pod".into(),
        cgroup: "/kubepods/pod/web".into(),
        pid: 4_000_000,
        start_time: 1 << 40,
        log: LogOptions { line_max: 16384, awaited: true },
        state: HoldingState::Exited(ExitStatus { code: Some(137), signal: Some(9), oom_killed: true, at: u64::MAX }),
        hooks: Some(hooks()),
        user_namespace: Some(true),
    }
}

fn bare() -> Holding {
    Holding {
        id: "pod".into(),
        sandbox: String::new(),
        cgroup: String::new(),
        pid: 0,
        start_time: 0,
        log: LogOptions::default(),
        state: HoldingState::Running,
        hooks: None,
        user_namespace: None,
    }
}

fn adopt() -> Envelope {
    Envelope::Request { seq: 7, body: Box::new(Request::Adopt(Adopt { holding: full() })), roles: vec![Role::Log] }
}

fn inventory() -> Envelope {
    Envelope::Reply { seq: 7, body: Ok(Reply::Holding(Box::new(bare()))), roles: Vec::new() }
}

#[test]
fn messages_about_containers_have_the_json_of_version_0_1_0() {
    assert_eq!(serde_json::to_string(&full()).expect("JSON"), FULL);
    assert_eq!(serde_json::to_string(&bare()).expect("JSON"), BARE);
    assert_eq!(serde_json::to_string(&adopt()).expect("JSON"), ADOPT);
    assert_eq!(serde_json::to_string(&inventory()).expect("JSON"), INVENTORY);
}
