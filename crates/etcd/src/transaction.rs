//! Transactions: several reads at one revision, and several changes at once.

use serde_json::{Value, json};

use crate::{
    Client, Entry, Error, Lease,
    client::KEYS_MAX,
    message::{TransactionResponse, encode, end_of},
};

/// What has changed in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Names of all keys, also of those that have not changed: a known key that is missing was deleted.
    pub keys: Vec<Vec<u8>>,
    /// The keys that have changed.
    pub entries: Vec<Entry>,
    /// Revision of the cluster.
    pub revision: i64,
}

/// A condition of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// A key does not exist.
    Absent(&'a str),
    /// Keys with a prefix do not exist.
    NoneBelow(&'a str),
    /// No key with a prefix was changed after a revision.
    UnchangedBelow(&'a str, i64),
    /// A key exists, and was last changed at a revision.
    Unchanged(&'a str, i64),
}

/// A change of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Creates or replaces a key, with a lease if it has one.
    Put(&'a str, &'a [u8], Option<Lease>),
    /// Deletes a key.
    Delete(&'a str),
}

impl Condition<'_> {
    fn encode(&self) -> Value {
        let absent =
            |key: &str| json!({"key": encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"});
        match *self {
            Self::Absent(key) => absent(key),
            Self::NoneBelow(prefix) => {
                let mut condition = absent(prefix);
                condition["range_end"] = encode(end_of(prefix)).into();
                condition
            }
            Self::UnchangedBelow(prefix, revision) => {
                json!({"key": encode(prefix), "range_end": encode(end_of(prefix)), "target": "MOD", "result": "LESS",
                    "mod_revision": revision.saturating_add(1).to_string()})
            }
            Self::Unchanged(key, revision) => {
                json!({"key": encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()})
            }
        }
    }
}

impl Change<'_> {
    fn encode(&self) -> Value {
        match *self {
            Self::Put(key, value, lease) => {
                let lease = lease.map_or(0, |lease| lease.id).to_string();
                json!({"request_put": {"key": encode(key), "value": encode(value), "lease": lease}})
            }
            Self::Delete(key) => json!({"request_delete_range": {"key": encode(key)}}),
        }
    }
}

impl Client {
    /// Returns the keys with a prefix that were changed after a revision, and the names of all with it.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn changed(&self, prefix: &str, revision: i64) -> Result<Changed, Error> {
        const OPERATION: &str = "read changed keys";
        let key = json!({"key": encode(prefix), "range_end": encode(end_of(prefix)), "limit": KEYS_MAX.to_string()});
        let (mut names, mut values) = (key.clone(), key);
        names["keys_only"] = true.into();
        values["min_mod_revision"] = revision.saturating_add(1).to_string().into();
        // Both at one revision.
        let body = json!({"success": [{"request_range": names}, {"request_range": values}]});
        let response: TransactionResponse = self.connection.call(OPERATION, "/v3/kv/txn", &body).await?;
        let revision = response.header.revision;
        let mut ranges = response.responses.into_iter().filter_map(|response| response.range);
        match (ranges.next(), ranges.next()) {
            (Some(names), Some(values)) if !names.more && !values.more => Ok(Changed {
                keys: names.kvs.into_iter().map(|entry| entry.key).collect(),
                entries: values.kvs,
                revision,
            }),
            _ => {
                let reason = format!("it does not have all keys that begin with {prefix}");
                Err(Error::Unavailable { operation: OPERATION, reason })
            }
        }
    }

    /// Makes several changes at once, if all conditions are met; returns whether they were.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`]. With the former the changes may have been made.
    pub async fn change(&self, conditions: &[Condition<'_>], changes: &[Change<'_>]) -> Result<bool, Error> {
        let compare: Vec<Value> = conditions.iter().map(Condition::encode).collect();
        let success: Vec<Value> = changes.iter().map(Change::encode).collect();
        let body = json!({"compare": compare, "success": success});
        let response: TransactionResponse = self.connection.call("change keys", "/v3/kv/txn", &body).await?;
        Ok(response.succeeded)
    }
}
