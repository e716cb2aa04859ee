use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A command.
#[derive(Serialize)]
pub(super) struct Request<'a, Arguments> {
    pub(super) execute: &'a str,
    pub(super) arguments: Arguments,
    pub(super) id: u64,
}

/// The first message of QEMU.
#[derive(Deserialize)]
pub(super) struct Greeting {
    #[serde(rename = "QMP")]
    pub(super) qmp: GreetingBody,
}

/// Body of a greeting.
#[derive(Deserialize)]
pub(super) struct GreetingBody {
    pub(super) version: Versions,
}

/// Versions in a greeting.
#[derive(Deserialize)]
pub(super) struct Versions {
    pub(super) qemu: Version,
}

/// Version of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Version of the patch.
    pub micro: u32,
}

/// Any later message of QEMU: an answer or an event.
#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) id: Option<u64>,
    pub(super) event: Option<String>,
    #[serde(default)]
    pub(super) data: Value,
    /// Absent in an error.
    #[serde(rename = "return", default, deserialize_with = "present")]
    pub(super) result: Option<Value>,
    pub(super) error: Option<Refusal>,
}

/// Error of a command.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) class: String,
    pub(super) desc: String,
}

/// Distinguishes `null` from an absent value.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
