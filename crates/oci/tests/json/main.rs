//! `null` and repeated fields in a spec, tried on every property that the types have.

mod full;

use oci::{Process, Resources, Seccomp, Spec, from_json};
use serde_json::Value;

/// Has no meaning in JSON, so it can be found in the text.
const MARK: &str = "@here@";

/// Maps whose members the user names.
const MAPS: [&str; 6] =
    ["/annotations", "/linux/sysctl", "/linux/timeOffsets", "/linux/netDevices", "/rdma", "/unified"];

/// What the specification requires where the object is there at all, and what has no default.
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
    for place in places().iter().filter(|place| place.kind == Kind::Field) {
        fields += 1;
        let with_null = from_json::<Spec>(place.text(|_| Some("null".into())).as_bytes());
        match from_json::<Spec>(place.text(|_| None).as_bytes()) {
            Ok(without) => assert_eq!(with_null.as_ref(), Ok(&without), "{}", place.pointer),
            Err(_) => {
                let error = with_null.expect_err("it is required").to_string();
                assert!(error.contains(place.name()), "{}: {error}", place.pointer);
                required.push(place.pointer.clone());
            }
        }
    }
    assert!(fields > 200, "only {fields} fields were tried");
    assert_eq!(required, REQUIRED);
}

#[test]
fn an_element_of_a_list_or_a_map_is_never_null() {
    for place in places().iter().filter(|place| place.kind != Kind::Field) {
        let error = from_json::<Spec>(place.text(|_| Some("null".into())).as_bytes())
            .map(drop)
            .expect_err(&place.pointer)
            .to_string();
        let list = place.pointer.rsplit('/').nth(1).expect("a list or a map is in something");
        assert!(error.contains("null") && error.contains(list), "{}: {error}", place.pointer);
    }
}

#[test]
fn the_last_of_two_fields_counts() {
    let full = full::spec();
    for place in places().iter().filter(|place| place.kind != Kind::Element) {
        let twice = |first: &str, last: &str| place.text(|_| Some(format!("{first},{:?}:{last}", place.name())));
        let value = place.value.to_string();
        assert_eq!(from_json::<Spec>(twice("null", &value).as_bytes()).as_ref(), Ok(&full), "{}", place.pointer);
        assert_eq!(from_json::<Spec>(twice(&value, &value).as_bytes()).as_ref(), Ok(&full), "{}", place.pointer);
        if place.kind == Kind::Field && !REQUIRED.contains(&place.pointer.as_str()) {
            let without = from_json::<Spec>(place.text(|_| None).as_bytes());
            assert_eq!(from_json::<Spec>(twice(&value, "null").as_bytes()), without, "{}", place.pointer);
        }
    }
}

#[test]
fn parts_of_a_spec_are_read_in_the_same_way() {
    let process: Process = from_json(br#"{"args": ["a"], "cwd": null, "env": null, "rlimits": null}"#).expect("valid");
    assert_eq!(process, Process { args: vec!["a".into()], ..Process::default() });
    let resources: Resources = from_json(br#"{"pids": {"limit": null}, "unified": null}"#).expect("valid");
    assert_eq!(resources, Resources { pids: Some(oci::Pids::default()), ..Resources::default() });
    let profile =
        br#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["a"], "action": "b", "args": null}]}"#;
    assert_eq!(from_json::<Seccomp>(profile).expect("valid").syscalls[0].names, ["a"]);
}

#[test]
fn a_fault_is_reported_where_it_is() {
    let error = |text: &str| from_json::<Spec>(text.as_bytes()).map(drop).expect_err(text).to_string();
    let plain = error("{\"mounts\": null,\n \"process\": {\"user\": {\"uid\": -1}}}");
    assert_eq!(plain, "process.user.uid: invalid value: integer `-1`, expected u32");
    let placed = error("{\n \"process\": {\"user\": {\"uid\": -1}}, \"mounts\": null}");
    assert_eq!(placed, "process.user.uid: invalid value: integer `-1`, expected u32 at line 2 column 31");
    assert!(error("{\"mounts\": null, ").contains("EOF"), "{}", error("{\"mounts\": null, "));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of an object of the specification.
    Field,
    /// Of a map.
    Entry,
    /// Of a list.
    Element,
}

/// A value somewhere in the full spec.
struct Place {
    pointer: String,
    kind: Kind,
    value: Value,
}

impl Place {
    fn name(&self) -> &str {
        self.pointer.rsplit('/').next().expect("a pointer has a name")
    }

    /// The full spec with this value written as `change` returns it, or without it.
    fn text(&self, change: impl Fn(&str) -> Option<String>) -> String {
        let mut spec = serde_json::to_value(full::spec()).expect("a spec is JSON");
        match change(&self.value.to_string()) {
            Some(text) => {
                *spec.pointer_mut(&self.pointer).expect("it was found there") = MARK.into();
                spec.to_string().replace(&format!("\"{MARK}\""), &text)
            }
            None => {
                let (parent, name) = self.pointer.rsplit_once('/').expect("it is in something");
                let parent = spec.pointer_mut(parent).and_then(Value::as_object_mut).expect("it is in an object");
                parent.remove(name).expect("it is there");
                spec.to_string()
            }
        }
    }
}

/// Every value of the full spec.
fn places() -> Vec<Place> {
    let full = full::spec();
    let debug = format!("{full:?}");
    for empty in ["None", "[]", "{}", "\"\"", ": 0", ": false"] {
        assert!(!debug.contains(empty), "the full spec has a property without a value: {empty} in {debug}");
    }
    let mut places = Vec::new();
    collect("", &serde_json::to_value(full).expect("a spec is JSON"), &mut places);
    places
}

fn collect(pointer: &str, value: &Value, places: &mut Vec<Place>) {
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
        collect(&pointer, child, places);
        places.push(Place { pointer, kind, value: child.clone() });
    }
}
