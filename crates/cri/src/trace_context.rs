//! W3C Trace Context: the trace that a request belongs to.

use std::hash::{BuildHasher, Hasher, RandomState};

use tonic::metadata::MetadataMap;

/// The trace context of a request: from the client's header `traceparent`, else new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    /// Trace id: 32 hexadecimal digits.
    pub(crate) trace: String,
    /// Id of the client's span: 16 hexadecimal digits.
    pub(crate) parent: Option<String>,
    /// The client's sampling decision; `None` if the client sent no context.
    pub(crate) sampled: Option<bool>,
}

impl TraceContext {
    /// Returns the client's context, or a new one. A new id is useful even without tracing: it identifies the log lines
    /// of one request.
    pub(crate) fn from_metadata(metadata: &MetadataMap) -> Self {
        let received = metadata.get("traceparent").and_then(|value| Self::parse(value.to_str().ok()?));
        received.unwrap_or_else(|| Self { trace: new_trace_id(), parent: None, sampled: None })
    }

    /// Parses `00-<trace>-<span>-<flags>` (W3C Trace Context, 3.2); later versions may append fields.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |text: &str, length| text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let valid = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
        let zero = |text: &str| text.bytes().all(|b| b == b'0');
        if !valid || zero(trace) || zero(span) || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace: trace.to_owned(), parent: Some(span.to_owned()), sampled: Some(flags & 1 == 1) })
    }
}

/// Returns a unique id. It is not secret, and not zero because its lowest bit is set.
fn new_trace_id() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word() | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn the_clients_context_is_used() {
        let context = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).expect("valid");
        assert_eq!(
            (context.trace.as_str(), context.parent.as_deref(), context.sampled),
            (TRACE, Some(SPAN), Some(true))
        );
        assert_eq!(
            TraceContext::parse(&format!("00-{TRACE}-{SPAN}-00")).and_then(|context| context.sampled),
            Some(false)
        );
        assert!(TraceContext::parse(&format!("01-{TRACE}-{SPAN}-01-later")).is_some());
    }

    #[test]
    fn invalid_contexts_are_ignored() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}\n-{SPAN}-01"),
        ] {
            assert_eq!(TraceContext::parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_request_without_context_gets_a_new_trace() {
        let (one, other) =
            (TraceContext::from_metadata(&MetadataMap::new()), TraceContext::from_metadata(&MetadataMap::new()));
        assert_ne!(one.trace, other.trace);
        assert_eq!((one.trace.len(), one.parent, one.sampled), (32, None, None));
    }
}
