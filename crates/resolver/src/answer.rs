//! What is done with a message of a pod.

use crate::{
    Names, reverse,
    wire::{self, Code, Query, Refusal},
};

/// The outcome for a message.
pub(crate) enum Answer {
    /// No response.
    Ignore,
    /// A response from memory.
    Response(Vec<u8>),
    /// Another server is to be queried.
    Forward(Query),
}

/// Decides about a message of a pod with these names.
pub(crate) fn answer(names: &dyn Names, message: &[u8]) -> Answer {
    let query = match Query::parse(message) {
        Ok(query) => query,
        Err(Refusal::Ignored) => return Answer::Ignore,
        Err(Refusal::Response(response)) => return Answer::Response(response),
    };
    let name = query.name.as_deref().filter(|_| matches!(query.class, wire::IN | wire::ANY));
    if let Some(name) = name {
        if query.kind == wire::PTR
            && let Some(host) = reverse::address(name).and_then(|address| names.name_of(address))
        {
            return Answer::Response(query.with_name(&host));
        }
        // A known name has no records of other types, and no other server knows more about it.
        if let Some(addresses) = names.addresses(name) {
            return Answer::Response(query.with_addresses(&addresses));
        }
    }
    match names.is_forwarding() {
        true => Answer::Forward(query),
        false => Answer::Response(query.empty(Code::ServerFailure)),
    }
}
