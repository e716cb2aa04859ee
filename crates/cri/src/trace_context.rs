//! W3C Trace Context: which trace a request belongs to.

use std::hash::{BuildHasher, Hasher, RandomState};

use tonic::metadata::MetadataMap;

/// Of one request: told by its client in `traceparent`, else new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    /// 32 hex digits.
    pub(crate) trace: String,
    /// The client's span: 16 hex digits.
    pub(crate) parent: Option<String>,
    /// What the client decided about recording; `None`: it told nothing.
    pub(crate) sampled: Option<bool>,
}

impl TraceContext {
    /// The client's, else a new one: also without traces the log's lines of one request are found by it.
    pub(crate) fn of(metadata: &MetadataMap) -> Self {
        let told = metadata.get("traceparent").and_then(|value| Self::parse(value.to_str().ok()?));
        told.unwrap_or_else(|| Self { trace: fresh(), parent: None, sampled: None })
    }

    /// `00-<trace>-<span>-<flags>` (W3C Trace Context, 3.2); versions to come may append more.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |text: &str, length| text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let good = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
        let zero = |text: &str| text.bytes().all(|b| b == b'0');
        if !good || zero(trace) || zero(span) || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace: trace.to_owned(), parent: Some(span.to_owned()), sampled: Some(flags & 1 == 1) })
    }
}

/// Unique, not secret. Never zero: one of its bits is set.
fn fresh() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word() | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_clients_context_is_taken_over() {
        let told = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).expect("valid");
        assert_eq!((told.trace.as_str(), told.parent.as_deref(), told.sampled), (TRACE, Some(SPAN), Some(true)));
        assert_eq!(TraceContext::parse(&format!("00-{TRACE}-{SPAN}-00")).and_then(|told| told.sampled), Some(false));
        assert!(TraceContext::parse(&format!("01-{TRACE}-{SPAN}-01-later")).is_some());
    }

    #[test]
    fn what_is_no_context_is_left_out() {
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
    fn without_one_each_request_gets_its_own() {
        let (one, other) = (TraceContext::of(&MetadataMap::new()), TraceContext::of(&MetadataMap::new()));
        assert_ne!(one.trace, other.trace);
        assert_eq!((one.trace.len(), one.parent, one.sampled), (32, None, None));
    }
}
