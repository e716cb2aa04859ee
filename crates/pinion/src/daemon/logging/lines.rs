//! Events to lines, with the fields of the spans around them.

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
    LogFigures,
    line::{Line, Style},
    queue::Queue,
    repeats::Repeats,
};

/// Fields of spans that are for traces, not for lines.
const FOR_TRACES: [&str; 6] = ["service", "parent", "sampled", "status", "error", "refusal"];
/// Fields that differ every time something is said.
const FLEETING: [&str; 2] = ["ms", "trace"];

/// See the module.
pub(super) struct Lines {
    style: Arc<Style>,
    figures: Arc<LogFigures>,
    repeats: Mutex<Repeats>,
    queue: Queue,
}

/// What a span or an event says, in its order.
#[derive(Clone, Debug, Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn put(&mut self, field: &Field, value: Value) {
        match self.fields.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, known)) => *known = value,
            None => self.fields.push((field.name(), value)),
        }
    }
}

impl Visit for Said {
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
    pub(super) fn new(style: Arc<Style>, figures: Arc<LogFigures>, queue: Queue) -> Self {
        Self { style, figures, repeats: Mutex::default(), queue }
    }

    /// The line, if it is to be written.
    fn line(&self, event: &Event<'_>, around: &[Said]) -> Option<String> {
        let mut said = Said::default();
        event.record(&mut said);
        let metadata = event.metadata();
        let own = said.fields.iter();
        // What the event says of a name goes before what its request says.
        let spans = around.iter().flat_map(|span| &span.fields);
        let spans = spans.filter(|(name, _)| !FOR_TRACES.contains(name));
        let mut fields: Vec<(&str, &Value)> = Vec::with_capacity(16);
        for (name, value) in own.chain(spans) {
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push((name, value));
            }
        }
        let left_out = match *metadata.level() <= Level::INFO {
            true => self.admit(event, &said.message, &fields)?,
            false => 0,
        };
        let line = Line {
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target(),
            message: &said.message,
            fields,
            left_out,
        };
        Some(self.style.write(&line))
    }

    fn admit(&self, event: &Event<'_>, message: &str, fields: &[(&str, &Value)]) -> Option<u64> {
        let lasting: Vec<_> = fields.iter().filter(|(name, _)| !FLEETING.contains(name)).collect();
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = repeats.admit(Instant::now(), event.metadata().callsite(), (message, lasting));
        if admitted.is_none() {
            self.figures.left_out.add(1);
        }
        admitted
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut said = Said::default();
        attributes.record(&mut said);
        span.extensions_mut().insert(said);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(said) = span.extensions_mut().get_mut::<Said>() {
            values.record(said);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut around = Vec::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(said) = span.extensions().get::<Said>() {
                around.push(said.clone());
            }
        }
        let Some(line) = self.line(event, &around) else { return };
        self.figures.lines[severity(*event.metadata().level())].add(1);
        self.queue.push(line);
    }
}

/// The index in [`super::LEVELS`].
fn severity(level: Level) -> usize {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}
