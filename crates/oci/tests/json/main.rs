//! Tests `null` and repeated fields for every property of the types.

mod full;

use oci::{Process, Resources, Seccomp, Spec, from_json};
use serde_json::Value;

/// A marker that does not occur elsewhere in the text.
const MARK: &str = "@here@";

/// Maps whose members are named by the user.
const MAPS: [&str; 6] =
    ["/annotations", "/linux/sysctl", "/linux/timeOffsets", "/linux/netDevices", "/rdma", "/unified"];

/// Properties that the specification requires if the object exists, and that do not have a default.
const REQUIRED: [&str; 9] = [
    "/linux/devices/0/path",
    "/linux/devices/0/type",
    "/linux/namespaces/0/type",
    "/linux/personality/domain",
    "/process/consoleSize/height",
    "/process/consoleSize/width",
    "/process/rlimits/0/hard",
    "/process/rlimits/0/soft",
    "/process/rlimits/0/type",
];

#[test]
fn a_field_that_is_null_is_absent() {
    let (mut fields, mut required) = (0, Vec::new());
    for location in locations().iter().filter(|location| location.kind == Kind::Field) {
        fields += 1;
        let with_null = from_json::<Spec>(location.text(|_| Some("null".into())).as_bytes());
        match from_json::<Spec>(location.text(|_| None).as_bytes()) {
            Ok(without) => assert_eq!(with_null.as_ref(), Ok(&without), "{}", location.pointer),
            Err(_) => {
                let error = with_null.expect_err("a required property is null").to_string();
                assert!(error.contains(location.name()), "{}: {error}", location.pointer);
                required.push(location.pointer.clone());
            }
        }
    }
    assert!(fields > 200, "only {fields} fields were tested");
    assert_eq!(required, REQUIRED);
}

#[test]
fn null_elements_of_lists_and_maps_are_refused() {
    for location in locations().iter().filter(|location| location.kind != Kind::Field) {
        let error = from_json::<Spec>(location.text(|_| Some("null".into())).as_bytes())
            .map(drop)
            .expect_err(&location.pointer)
            .to_string();
        let list = location.pointer.rsplit('/').nth(1).expect("the value is in a list or a map");
        assert!(error.contains("null") && error.contains(list), "{}: {error}", location.pointer);
    }
}

#[test]
fn the_last_of_two_fields_counts() {
    let full = full::spec();
    for location in locations().iter().filter(|location| location.kind != Kind::Element) {
        let twice = |first: &str, last: &str| location.text(|_| Some(format!("{first},{:?}:{last}", location.name())));
        let value = location.value.to_string();
        assert_eq!(from_json::<Spec>(twice("null", &value).as_bytes()).as_ref(), Ok(&full), "{}", location.pointer);
        assert_eq!(from_json::<Spec>(twice(&value, &value).as_bytes()).as_ref(), Ok(&full), "{}", location.pointer);
        if location.kind == Kind::Field && !REQUIRED.contains(&location.pointer.as_str()) {
            let without = from_json::<Spec>(location.text(|_| None).as_bytes());
            assert_eq!(from_json::<Spec>(twice(&value, "null").as_bytes()), without, "{}", location.pointer);
        }
    }
}

#[test]
fn parts_of_a_spec_are_parsed_in_the_same_way() {
    let process: Process =
        from_json(br#"{"args": ["a"], "cwd": null, "env": null, "rlimits": null}"#).expect("parse the JSON");
    assert_eq!(process, Process { args: vec!["a".into()], ..Process::default() });
    let resources: Resources = from_json(br#"{"pids": {"limit": null}, "unified": null}"#).expect("parse the JSON");
    assert_eq!(resources, Resources { pids: Some(oci::Pids::default()), ..Resources::default() });
    let profile =
        br#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["a"], "action": "b", "args": null}]}"#;
    assert_eq!(from_json::<Seccomp>(profile).expect("parse the JSON").syscalls[0].names, ["a"]);
}

#[test]
fn errors_contain_the_property() {
    let error = |text: &str| from_json::<Spec>(text.as_bytes()).map(drop).expect_err(text).to_string();
    let plain = error("{\"mounts\": null,\n \"process\": {\"user\": {\"uid\": -1}}}");
    assert_eq!(plain, "process.user.uid: invalid value: integer `-1`, expected u32");
    let with_position = error("{\n \"process\": {\"user\": {\"uid\": -1}}, \"mounts\": null}");
    assert_eq!(with_position, "process.user.uid: invalid value: integer `-1`, expected u32 at line 2 column 31");
    assert!(error("{\"mounts\": null, ").contains("EOF"), "{}", error("{\"mounts\": null, "));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A member of an object of the specification.
    Field,
    /// A member of a map.
    Entry,
    /// An element of a list.
    Element,
}

/// A value in the full spec, by its JSON pointer.
struct Location {
    pointer: String,
    kind: Kind,
    value: Value,
}

impl Location {
    fn name(&self) -> &str {
        self.pointer.rsplit('/').next().expect("the pointer is empty")
    }

    /// Returns the full spec with this value replaced by the result of `change`, or without it.
    fn text(&self, change: impl Fn(&str) -> Option<String>) -> String {
        let mut spec = serde_json::to_value(full::spec()).expect("serialize the spec");
        match change(&self.value.to_string()) {
            Some(text) => {
                *spec.pointer_mut(&self.pointer).expect("resolve the pointer") = MARK.into();
                spec.to_string().replace(&format!("\"{MARK}\""), &text)
            }
            None => {
                let (parent, name) = self.pointer.rsplit_once('/').expect("split the pointer");
                let parent = spec.pointer_mut(parent).and_then(Value::as_object_mut).expect("the parent is an object");
                parent.remove(name).expect("the parent has the member");
                spec.to_string()
            }
        }
    }
}

/// Returns all values of the full spec.
fn locations() -> Vec<Location> {
    let full = full::spec();
    let debug = format!("{full:?}");
    for empty in ["None", "[]", "{}", "\"\"", ": 0", ": false"] {
        assert!(!debug.contains(empty), "the full spec has a property without a value: {empty} in {debug}");
    }
    let mut locations = Vec::new();
    collect("", &serde_json::to_value(full).expect("serialize the spec"), &mut locations);
    locations
}

fn collect(pointer: &str, value: &Value, locations: &mut Vec<Location>) {
    let is_map = MAPS.iter().any(|map| pointer.ends_with(map));
    let children: Vec<(String, Kind, &Value)> = match value {
        Value::Object(members) => {
            let kind = if is_map { Kind::Entry } else { Kind::Field };
            members.iter().map(|(name, member)| (name.clone(), kind, member)).collect()
        }
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(index, element)| (index.to_string(), Kind::Element, element)).collect()
        }
        _ => Vec::new(),
    };
    for (name, kind, child) in children {
        let pointer = format!("{pointer}/{name}");
        collect(&pointer, child, locations);
        locations.push(Location { pointer, kind, value: child.clone() });
    }
}
