use super::image;

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
