//! Requests and responses in JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, de::Error as _};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Key.
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// Value.
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// Revision of the last change of the key.
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: i64,
    /// Lease of the key; zero if there is none.
    #[serde(default, deserialize_with = "number")]
    pub lease: i64,
}

/// Keys with a prefix, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The keys in ascending order.
    pub entries: Vec<Entry>,
    /// Revision of the cluster.
    pub revision: i64,
}

/// The header of a response. A document without a header is not a response of etcd.
#[derive(Deserialize)]
pub(crate) struct Header {
    #[serde(deserialize_with = "number")]
    pub(crate) revision: i64,
}

#[derive(Deserialize)]
pub(crate) struct RangeResponse {
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) kvs: Vec<Entry>,
    #[serde(default)]
    pub(crate) more: bool,
}

#[derive(Deserialize)]
pub(crate) struct TransactionResponse {
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) succeeded: bool,
    #[serde(default)]
    pub(crate) responses: Vec<OperationResponse>,
}

/// The response to one operation of a transaction.
#[derive(Deserialize)]
pub(crate) struct OperationResponse {
    #[serde(rename = "response_range")]
    pub(crate) range: Option<OperationRange>,
}

#[derive(Deserialize)]
pub(crate) struct OperationRange {
    #[serde(default)]
    pub(crate) kvs: Vec<Entry>,
    #[serde(default)]
    pub(crate) more: bool,
}

#[derive(Deserialize)]
pub(crate) struct LeaseResponse {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) id: i64,
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

#[derive(Deserialize)]
pub(crate) struct AuthenticateResponse {
    pub(crate) token: String,
}

/// A message of a stream.
#[derive(Deserialize)]
pub(crate) struct Streamed<T> {
    pub(crate) result: Option<T>,
    pub(crate) error: Option<Failure>,
}

#[derive(Default, Deserialize)]
pub(crate) struct WatchResponse {
    #[serde(default)]
    pub(crate) canceled: bool,
    #[serde(default)]
    pub(crate) events: Vec<serde::de::IgnoredAny>,
}

/// An error of the gateway.
#[derive(Deserialize)]
pub(crate) struct Failure {
    #[serde(default, alias = "grpc_code")]
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Returns the end of the range of keys with a prefix: the prefix with its last byte increased.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
}

/// A number of 64 bits, which is a string, or a number of JSON.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes() {
        assert_eq!(end_of("/p/"), b"/p0");
        assert_eq!(end_of(""), [0]);
    }

    #[test]
    fn responses_are_parsed() {
        let text = r#"{"header":{"revision":"7"},"kvs":[{"key":"L3AvYQ==","mod_revision":"2","value":"aGVsbG8=","lease":"9"},
            {"key":"L3AvYg=="}],"count":"2"}"#;
        let response: RangeResponse = serde_json::from_str(text).unwrap();
        assert_eq!((response.header.revision, response.kvs.len()), (7, 2));
        let entry = &response.kvs[0];
        assert_eq!((&entry.key[..], &entry.value[..], entry.lease), (&b"/p/a"[..], &b"hello"[..], 9));
        assert!(serde_json::from_str::<Entry>(r#"{"key":"*"}"#).is_err());
        assert!(serde_json::from_str::<Entry>(r#"{"key":"L3AvYg==","lease":"x"}"#).is_err());
    }
}
