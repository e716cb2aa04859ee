use super::*;
use crate::messages::{Cpu, Int, KeyValue, Memory, Mount, UInt64};

fn creation() -> Collector {
    let env = vec!["PATH=/bin".to_owned(), "A=1".to_owned()];
    let mounts = vec![Mount { destination: "/data".to_owned(), ..Mount::default() }];
    Collector::of_creation(Container { id: "c1".to_owned(), env, mounts, ..Container::default() })
}

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: value.to_owned() }
}

fn env(variables: &[(&str, &str)]) -> CreateResponse {
    let env = variables.iter().map(|(key, value)| variable(key, value)).collect();
    CreateResponse { adjust: Some(Adjustment { env, ..Adjustment::default() }), ..CreateResponse::default() }
}

fn memory(limit: i64) -> Resources {
    let memory = Memory { limit: Some(Int { value: limit }), ..Memory::default() };
    Resources { memory: Some(memory), ..Resources::default() }
}

fn update(id: &str, resources: Resources, ignore_failure: bool) -> ContainerUpdate {
    let linux = Some(UpdateLinux { resources: Some(resources) });
    ContainerUpdate { container_id: id.to_owned(), linux, ignore_failure }
}

#[test]
fn a_plugin_sees_what_the_earlier_ones_set() {
    let mut collector = creation();
    collector.add_creation("00-a", env(&[("A", "2"), ("B", "3")])).expect("collected");
    assert_eq!(collector.container.env, ["PATH=/bin", "A=2", "B=3"]);
    assert_eq!(collector.adjust.env, [variable("A", "2"), variable("B", "3")]);
}

#[test]
fn two_plugins_cannot_set_the_same_entry_and_nothing_of_the_second_response_is_used() {
    let mut collector = creation();
    collector.add_creation("00-a", env(&[("A", "2")])).expect("collected");
    let refused = collector.add_creation("10-b", env(&[("C", "1"), ("A", "9")])).expect_err("a conflict");
    assert_eq!(refused.to_string(), "plugins 00-a and 10-b both set Env \"A\"");
    assert_eq!(collector.container.env, ["PATH=/bin", "A=2"]);
    assert_eq!(collector.adjust.env, [variable("A", "2")]);
}

#[test]
fn a_plugin_that_removes_an_entry_first_may_set_it() {
    let mut collector = creation();
    collector.add_creation("00-a", env(&[("A", "2")])).expect("collected");
    collector.add_creation("10-b", env(&[("-A", ""), ("A", "9")])).expect("collected");
    assert_eq!(collector.container.env, ["PATH=/bin", "A=9"]);
    let owners = collector.owners.of("c1", Field::Env);
    assert_eq!(owners, [(Some("A"), "10-b")]);
    collector.add_creation("20-c", env(&[("-PATH", "")])).expect("collected");
    assert_eq!(collector.container.env, ["A=9"]);
    assert_eq!(collector.adjust.env.last(), Some(&variable("-PATH", "")), "the engine is to remove it");
}

#[test]
fn arguments_of_another_plugin_are_replaced_only_on_request() {
    let args = |args: &[&str]| CreateResponse {
        adjust: Some(Adjustment { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..Adjustment::default() }),
        ..CreateResponse::default()
    };
    let mut collector = creation();
    collector.add_creation("00-a", args(&["x"])).expect("collected");
    collector.add_creation("10-b", args(&["y"])).expect_err("a conflict");
    collector.add_creation("10-b", args(&["", "y", "z"])).expect("collected");
    assert_eq!(collector.container.args, ["y", "z"]);
}

#[test]
fn updates_of_a_container_are_merged_and_conflicts_that_may_be_ignored_are() {
    let mut collector = creation();
    let respond = |update| CreateResponse { update: vec![update], ..CreateResponse::default() };
    collector.add_creation("00-a", respond(update("c2", memory(100), false))).expect("collected");
    let shares = Cpu { shares: Some(UInt64 { value: 5 }), ..Cpu::default() };
    let shares = Resources { cpu: Some(shares), ..Resources::default() };
    collector.add_creation("10-b", respond(update("c2", shares, false))).expect("collected");
    collector.add_creation("10-b", respond(update("c2", memory(7), true))).expect("ignored");
    collector.add_creation("10-b", respond(update("c2", memory(7), false))).expect_err("a conflict");
    let merged = collector.updates["c2"].linux.clone().and_then(|linux| linux.resources).unwrap_or_default();
    assert_eq!(merged.memory, memory(100).memory);
    assert_eq!(merged.cpu.and_then(|cpu| cpu.shares), Some(UInt64 { value: 5 }));
}

#[test]
fn a_container_that_is_being_created_cannot_be_updated_and_lists_are_bounded() {
    let respond = |update| CreateResponse { update, ..CreateResponse::default() };
    let own = creation().add_creation("00-a", respond(vec![update("c1", memory(1), true)]));
    assert!(matches!(own, Err(Unusable::SelfUpdate { .. })), "{own:?}");
    let many = vec![update("c2", memory(1), true); UPDATES_MAX + 1];
    let many = creation().add_creation("00-a", respond(many));
    assert!(matches!(many, Err(Unusable::TooMany { .. })), "{many:?}");
}

#[test]
fn an_update_that_a_plugin_changes_is_what_the_next_plugin_and_the_engine_see() {
    let container = Container { id: "c1".to_owned(), ..Container::default() };
    let mut collector = Collector::of_update(container, memory(50));
    let respond = |update| UpdateResponse { update: vec![update], ..UpdateResponse::default() };
    collector.add_update("00-a", respond(update("c1", memory(80), false))).expect("collected");
    assert_eq!(collector.requested, Some(memory(80)));
}

#[test]
fn hooks_of_all_plugins_are_kept_with_their_owners() {
    let hook = |path: &str| {
        let hook = crate::messages::Hook { path: path.to_owned(), ..Default::default() };
        let hooks = Some(Hooks { prestart: vec![hook], ..Hooks::default() });
        CreateResponse { adjust: Some(Adjustment { hooks, ..Adjustment::default() }), ..CreateResponse::default() }
    };
    let mut collector = creation();
    collector.add_creation("00-a", hook("/a")).expect("collected");
    collector.add_creation("10-b", hook("/b")).expect("collected");
    assert_eq!(collector.adjust.hooks.clone().unwrap_or_default().prestart.len(), 2);
    assert_eq!(collector.owners.of("c1", Field::Hooks), [(None, "00-a,10-b")]);
}

fn linux(linux: AdjustmentLinux) -> CreateResponse {
    let adjust = Adjustment { linux: Some(linux), ..Adjustment::default() };
    CreateResponse { adjust: Some(adjust), ..CreateResponse::default() }
}

#[test]
fn the_device_rules_of_all_plugins_are_collected_in_order() {
    let rule = |allow| crate::messages::DeviceRule { allow, r#type: "c".to_owned(), ..Default::default() };
    let rules = |allow| {
        let resources = Some(Resources { devices: vec![rule(allow)], ..Resources::default() });
        linux(AdjustmentLinux { resources, ..AdjustmentLinux::default() })
    };
    let mut collector = creation();
    collector.add_creation("00-a", rules(false)).expect("collected");
    collector.add_creation("10-b", rules(true)).expect("collected");
    let collected = collector.adjust.linux.expect("adjusted").resources.expect("resources").devices;
    assert_eq!(collected, [rule(false), rule(true)]);
}

#[test]
fn a_removed_namespace_is_claimed_like_one_that_is_set() {
    let namespace = |name: &str| {
        let namespaces = vec![Namespace { r#type: name.to_owned(), ..Namespace::default() }];
        linux(AdjustmentLinux { namespaces, ..AdjustmentLinux::default() })
    };
    let mut collector = creation();
    collector.add_creation("00-a", namespace("-pid")).expect("collected");
    assert_eq!(collector.owners.of("c1", Field::Namespaces), [(Some("pid"), "00-a")]);
    collector.add_creation("10-b", namespace("pid")).expect_err("a conflict");
    collector.add_creation("10-b", namespace("-pid")).expect_err("a conflict");
}

#[test]
fn what_all_plugins_set_is_bounded_before_it_is_compared() {
    let many = |from: u32, count: u32| {
        let env = (from..from + count).map(|number| variable(&format!("V{number}"), "")).collect();
        CreateResponse { adjust: Some(Adjustment { env, ..Adjustment::default() }), ..CreateResponse::default() }
    };
    let mut collector = creation();
    collector.add_creation("00-a", many(0, 4000)).expect("collected");
    let error = collector.add_creation("10-b", many(4000, 97)).expect_err("too many").to_string();
    assert!(error.contains("environment variables") && error.contains("4097"), "{error}");
    // Comparing these with each other would take hours.
    creation().add_creation("00-a", many(0, 500_000)).expect_err("too many");
    let unified = (0..5000).map(|number| (format!("f{number}"), String::new())).collect();
    let resources = Resources { unified, ..Resources::default() };
    let response = UpdateResponse { update: vec![update("c2", resources, true)], ..UpdateResponse::default() };
    collector.add_update("10-b", response).expect_err("too many");
}

#[test]
fn one_destination_written_in_two_ways_is_a_conflict() {
    let mount = |destination: &str| {
        let mounts = vec![Mount { destination: destination.to_owned(), ..Mount::default() }];
        CreateResponse { adjust: Some(Adjustment { mounts, ..Adjustment::default() }), ..CreateResponse::default() }
    };
    let mut collector = creation();
    collector.add_creation("00-a", mount("/new")).expect("collected");
    collector.add_creation("10-b", mount("/new/")).expect_err("a conflict");
}
