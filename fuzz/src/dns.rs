use std::net::IpAddr;

use resolver::wire::{ANY, Query, Refusal};

/// Longest response from memory: what every client accepts.
const RESPONSE_MAX: usize = 512;

/// Parses a message of a pod. A response must answer the query, be valid itself and have no more than 512 bytes.
pub fn dns(data: &[u8]) {
    let query = match Query::parse(data) {
        Ok(query) => query,
        Err(Refusal::Ignored) => return,
        Err(Refusal::Response(response)) => {
            assert!(response.len() <= RESPONSE_MAX && response[2] & 0x80 != 0 && response[..2] == data[..2]);
            return;
        }
    };
    if let Some(name) = &query.name {
        assert!(name.len() < 255 && name.split('.').all(|label| (1..64).contains(&label.len())), "{name}");
    }
    let addresses: Vec<IpAddr> =
        (0..40u8).map(|n| if n % 2 == 0 { IpAddr::from([10, 0, 0, n]) } else { IpAddr::from([n; 16]) }).collect();
    let response = query.with_addresses(&addresses);
    assert!(response.len() <= RESPONSE_MAX && query.is_answered_by(query.id(), &response));
    // Half of the records of all types.
    assert!(response[7] <= 40 && (query.kind == ANY || response[7] <= 20));
    assert!(query.is_answered_by(query.id(), &query.with_name("web.shop")));
    // A response is not a query: two resolvers never answer each other.
    assert_eq!(Query::parse(&response), Err(Refusal::Ignored));
}
