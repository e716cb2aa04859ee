//! Converts events into lines, with the fields of the enclosing spans.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use serde_json::Value;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{
    LogMetrics,
    line::{Line, Style},
    queue::Queue,
    repeats::Repeats,
};

/// Fields of spans that are exported with traces only.
const TRACE_FIELDS: [&str; 6] = ["service", "parent", "sampled", "status", "error", "refusal"];
/// Fields that differ in otherwise identical events.
const VARYING_FIELDS: [&str; 2] = ["ms", "trace"];

/// A layer that writes an event as a log line.
pub(super) struct Lines {
    style: Arc<Style>,
    metrics: Arc<LogMetrics>,
    repeats: Mutex<Repeats>,
    queue: Queue,
}

/// The message and the fields of a span or an event, in their order.
#[derive(Clone, Debug, Default)]
struct Fields {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match self.fields.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, previous)) => *previous = value,
            None => self.fields.push((field.name(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, Value::from(format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, Value::from(value)),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, Value::from(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }
}

impl Lines {
    pub(super) fn new(style: Arc<Style>, metrics: Arc<LogMetrics>, queue: Queue) -> Self {
        Self { style, metrics, repeats: Mutex::default(), queue }
    }

    /// Formats the line, unless it is suppressed.
    fn line(&self, event: &Event<'_>, spans: &[Fields]) -> Option<String> {
        let mut recorded = Fields::default();
        event.record(&mut recorded);
        let metadata = event.metadata();
        // A field of the event overrides that of a span with the same name.
        let span_fields = spans.iter().flat_map(|span| &span.fields);
        let span_fields = span_fields.filter(|(name, _)| !TRACE_FIELDS.contains(name));
        let mut fields: Vec<(&str, &Value)> = Vec::with_capacity(16);
        for (name, value) in recorded.fields.iter().chain(span_fields) {
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push((name, value));
            }
        }
        let left_out = match *metadata.level() <= Level::INFO {
            true => self.admit(event, &recorded.message, &fields)?,
            false => 0,
        };
        let line = Line {
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target(),
            message: &recorded.message,
            fields,
            left_out,
        };
        Some(self.style.write(&line))
    }

    fn admit(&self, event: &Event<'_>, message: &str, fields: &[(&str, &Value)]) -> Option<u64> {
        let constant: Vec<_> = fields.iter().filter(|(name, _)| !VARYING_FIELDS.contains(name)).collect();
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = repeats.admit(Instant::now(), event.metadata().callsite(), (message, constant));
        if admitted.is_none() {
            self.metrics.left_out.add(1);
        }
        admitted
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut spans = Vec::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                spans.push(fields.clone());
            }
        }
        let Some(line) = self.line(event, &spans) else { return };
        self.metrics.lines[severity(*event.metadata().level())].add(1);
        self.queue.push(line);
    }
}

/// Returns the index of a level in [`super::LEVELS`].
fn severity(level: Level) -> usize {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}
