use super::{Rates, image};

#[test]
fn a_rate_needs_two_samples_some_time_apart() {
    let rates = Rates::default();
    assert_eq!(rates.next("a", 1_000_000_000, 0), None);
    assert_eq!(rates.next("a", 1_000_000_001, 5), None, "too soon");
    assert_eq!(rates.next("a", 3_000_000_000, 1_000_000_000), Some(500_000_000), "half a core");
    assert_eq!(rates.next("a", 3_000_000_001, 1_000_000_100), Some(500_000_000), "too soon: the last one stands");
}

#[test]
fn rates_of_removed_containers_are_forgotten() {
    let rates = Rates::default();
    rates.next("a", 0, 0);
    rates.keep(&std::collections::HashSet::from(["b"]));
    assert_eq!(rates.next("a", 1_000_000_000, 7), None);
}

#[test]
fn an_image_tells_its_user_as_kubelet_wants_it() {
    assert_eq!(image::user(""), (None, String::new()));
    assert_eq!(image::user("1000:50"), (Some(1000), String::new()));
    assert_eq!(image::user("www:www"), (None, "www".to_owned()));
}

#[test]
fn a_configuration_shows_what_was_said() {
    let value = serde_json::json!({"a": {"b": null, "c": ""}, "d": [0, {"e": false}], "f": 1, "g": true});
    assert_eq!(super::info::said(value), serde_json::json!({"d": [0, {}], "f": 1, "g": true}));
}
