//! The recording of an open span.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    attribute::Fields,
    proto::{Event, Span, Status},
};

/// Maximum number of events per span.
const EVENTS_MAX: usize = 32;
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const ERROR: i32 = 2;

/// The data that is attached to an open span of `tracing`.
pub(crate) enum SpanState {
    /// The span belongs to a trace that is not recorded.
    Unrecorded,
    Recorded(Box<Recording>),
}

pub(crate) struct Recording {
    pub(crate) trace: [u8; 16],
    pub(crate) id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: &'static str,
    started: u64,
    /// When the request was answered. Work that continues afterwards does not make the span longer.
    answered: Option<u64>,
    fields: Fields,
    events: Vec<Event>,
    dropped_events: u32,
}

impl Recording {
    /// Starts a recording; `parent` is the trace, and the span that it is a child of.
    pub(crate) fn new(name: &'static str, parent: ([u8; 16], Option<[u8; 8]>), fields: Fields) -> Self {
        Self {
            trace: parent.0,
            id: new_id(),
            parent: parent.1,
            name,
            started: now(),
            answered: None,
            fields,
            events: Vec::new(),
            dropped_events: 0,
        }
    }

    /// Records fields that were set after the span was opened.
    pub(crate) fn record(&mut self, record: impl FnOnce(&mut Fields)) {
        record(&mut self.fields);
        if self.fields.answered && self.answered.is_none() {
            self.answered = Some(now());
        }
    }

    pub(crate) fn event(&mut self, fields: Fields, level: &str) {
        if self.events.len() == EVENTS_MAX {
            self.dropped_events += 1;
            return;
        }
        let mut attributes = fields.attributes;
        attributes.push(crate::proto::KeyValue::new("level", crate::proto::Value::Text(level.to_owned())));
        self.events.push(Event { time_unix_nano: now(), name: fields.message.unwrap_or_default(), attributes });
    }

    /// Ends the recording.
    pub(crate) fn close(self) -> Span {
        let fields = self.fields;
        let mut attributes = fields.attributes;
        let (name, kind) = match (fields.service, fields.method) {
            (Some(service), Some(method)) => {
                let system = crate::proto::Value::Text("grpc".to_owned());
                attributes.push(crate::proto::KeyValue::new("rpc.system", system));
                (format!("{service}/{method}"), SERVER)
            }
            _ => (self.name.to_owned(), INTERNAL),
        };
        Span {
            trace_id: self.trace.to_vec(),
            span_id: self.id.to_vec(),
            parent_span_id: self.parent.map(|id| id.to_vec()).unwrap_or_default(),
            name,
            kind,
            start_time_unix_nano: self.started,
            end_time_unix_nano: self.answered.unwrap_or_else(now),
            attributes,
            events: self.events,
            dropped_events_count: self.dropped_events,
            status: fields.error.map(|message| Status { message, code: ERROR }),
        }
    }
}

/// Returns a unique id, which is not secret and never zero.
pub(crate) fn new_id<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    for part in bytes.chunks_mut(8) {
        let word = RandomState::new().build_hasher().finish() | 1;
        part.copy_from_slice(&word.to_be_bytes()[..part.len()]);
    }
    bytes
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
