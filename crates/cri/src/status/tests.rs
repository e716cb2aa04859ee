use cri_proto::v1;

use super::{image, samples, usage_of_container, usage_of_sandbox};

#[test]
fn without_a_limit_nothing_is_available() {
    let mut pod = samples::pod();
    let zero = Some(v1::UInt64Value { value: 0 });
    assert_eq!(usage_of_sandbox(&pod).memory.and_then(|memory| memory.available_bytes), zero);
    let container = std::sync::Arc::make_mut(&mut pod.containers[0]);
    container.cgroup.swap_usage = Some(1);
    let available = |stats: &pod::ContainerStats| {
        let usage = usage_of_container(stats, "/");
        (usage.memory.and_then(|memory| memory.available_bytes), usage.swap.and_then(|swap| swap.swap_available_bytes))
    };
    assert_eq!(available(container), (zero, zero));
    (container.cgroup.memory_limit, container.cgroup.memory_working_set) = (Some(100), 60);
    container.cgroup.swap_limit = Some(5);
    let value = |value| Some(v1::UInt64Value { value });
    assert_eq!(available(container), (value(40), value(4)));
    container.cgroup.memory_limit = Some(50);
    assert_eq!(available(container).0, zero, "a limit that was lowered below the usage");
}

#[test]
fn an_image_has_either_a_uid_or_a_user_name() {
    assert_eq!(image::user(""), (None, String::new()));
    assert_eq!(image::user("1000:50"), (Some(1000), String::new()));
    assert_eq!(image::user("www:www"), (None, "www".to_owned()));
}

#[test]
fn a_configuration_is_shown_without_unset_fields() {
    let value = serde_json::json!({"a": {"b": null, "c": ""}, "d": [0, {"e": false}], "f": 1, "g": true});
    assert_eq!(super::info::without_empty(value), serde_json::json!({"d": [0, {}], "f": 1, "g": true}));
}
