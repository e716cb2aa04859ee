//! Operations on keys and leases.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Entry, Error, Options, Range,
    connection::Connection,
    message::{LeaseResponse, RangeResponse, Streamed, TransactionResponse, encode, end_of},
};

/// Most keys that are read; a range with more is an error.
pub(crate) const KEYS_MAX: usize = 100_000;

/// A client of one cluster.
#[derive(Debug)]
pub struct Client {
    pub(crate) connection: Connection,
}

/// A lease: keys that have it are deleted when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the lease.
    pub id: i64,
    /// Time until it expires unless it is renewed.
    pub ttl: Duration,
}

impl Client {
    /// Reads the files of the options; connects to nothing yet. Blocks for as long as the files take.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Tls`].
    pub fn new(options: Options) -> Result<Self, Error> {
        Ok(Self { connection: Connection::new(options)? })
    }

    /// Returns all keys with a prefix.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn range(&self, prefix: &str) -> Result<Range, Error> {
        const OPERATION: &str = "read keys";
        let body = json!({"key": encode(prefix), "range_end": encode(end_of(prefix)), "limit": KEYS_MAX.to_string()});
        let response: RangeResponse = self.connection.call(OPERATION, "/v3/kv/range", &body).await?;
        if response.more {
            let reason = format!("more than {KEYS_MAX} keys begin with {prefix}");
            return Err(Error::Unavailable { operation: OPERATION, reason });
        }
        Ok(Range { entries: response.kvs, revision: response.header.revision })
    }

    /// Creates a key; returns whether it did not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`], also for a lease that has expired. With the former the key may have been
    /// created.
    pub async fn create(&self, key: &str, value: &[u8], lease: Lease) -> Result<bool, Error> {
        let absent = json!({"key": encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"});
        let put = json!({"request_put": {"key": encode(key), "value": encode(value), "lease": lease.id.to_string()}});
        self.transact("create key", &absent, &put).await
    }

    /// Creates or replaces a key.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`], also for a lease that has expired. With the former the key may have been
    /// written.
    pub async fn put(&self, key: &str, value: &[u8], lease: Lease) -> Result<(), Error> {
        let body = json!({"key": encode(key), "value": encode(value), "lease": lease.id.to_string()});
        self.connection.call::<Value>("write key", "/v3/kv/put", &body).await.map(drop)
    }

    /// Returns one key; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        let response: RangeResponse =
            self.connection.call("read key", "/v3/kv/range", &json!({"key": encode(key)})).await?;
        Ok(response.kvs.into_iter().next())
    }

    /// Replaces a key's value and lease if the key has not been changed since a revision; returns whether it was replaced.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn replace(&self, key: &str, value: &[u8], lease: Lease, revision: i64) -> Result<bool, Error> {
        let unchanged =
            json!({"key": encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()});
        let put = json!({"request_put": {"key": encode(key), "value": encode(value), "lease": lease.id.to_string()}});
        self.transact("replace key", &unchanged, &put).await
    }

    /// Deletes a key if it has not been changed since a revision; returns whether it was deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn delete(&self, key: &str, revision: i64) -> Result<bool, Error> {
        let unchanged =
            json!({"key": encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()});
        self.transact("delete key", &unchanged, &json!({"request_delete_range": {"key": encode(key)}})).await
    }

    async fn transact(&self, operation: &'static str, compare: &Value, request: &Value) -> Result<bool, Error> {
        let body = json!({"compare": [compare], "success": [request]});
        let response: TransactionResponse = self.connection.call(operation, "/v3/kv/txn", &body).await?;
        Ok(response.succeeded)
    }

    /// Creates a lease.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let body = json!({"TTL": ttl.as_secs().max(1).to_string()});
        let response: LeaseResponse = self.connection.call("grant lease", "/v3/lease/grant", &body).await?;
        Ok(Lease { id: response.id, ttl: Duration::from_secs(response.ttl.max(1).unsigned_abs()) })
    }

    /// Renews a lease; returns whether it still existed.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn renew(&self, lease: Lease) -> Result<bool, Error> {
        const OPERATION: &str = "renew lease";
        let body = json!({"ID": lease.id.to_string()});
        let response: Streamed<LeaseResponse> = self.connection.call(OPERATION, "/v3/lease/keepalive", &body).await?;
        match (response.result, response.error) {
            (Some(renewed), None) => Ok(renewed.ttl > 0),
            (_, Some(failure)) => {
                Err(Error::Refused { operation: OPERATION, code: failure.code, message: failure.message })
            }
            (None, None) => Err(Error::Unavailable { operation: OPERATION, reason: "the response is empty".into() }),
        }
    }

    /// Ends a lease, and deletes its keys.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`] for a lease that does not exist.
    pub async fn revoke(&self, lease: Lease) -> Result<(), Error> {
        let body = json!({"ID": lease.id.to_string()});
        self.connection.call::<Value>("revoke lease", "/v3/lease/revoke", &body).await.map(drop)
    }
}
