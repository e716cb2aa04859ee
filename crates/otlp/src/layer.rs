//! The subscriber's side: spans as they open, say more, and close.

use std::sync::Arc;

use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, Filter},
    registry::LookupSpan,
};

use crate::{
    attribute::Fields,
    span::{Open, Recording, fresh},
    traces::Shared,
};

/// See [`crate::Traces::layer`].
pub(crate) struct Spans(pub(crate) Arc<Shared>);

/// Wants nothing while export is off.
pub(crate) struct WhileOn(pub(crate) Arc<Shared>);

impl WhileOn {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let deep = if metadata.is_span() { Level::DEBUG } else { Level::WARN };
        *metadata.level() <= deep && self.0.is_on() && self.0.is_ours(metadata.target())
    }
}

impl<S> Filter<S> for WhileOn {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.0.is_on() { LevelFilter::DEBUG } else { LevelFilter::OFF })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let above = span.parent().map(|parent| match parent.extensions().get::<Open>() {
            Some(Open::Recorded(recording)) => Some((recording.trace, Some(recording.id))),
            // Opened while export was off: its trace has no beginning.
            Some(Open::Unrecorded) | None => None,
        });
        let above = above.unwrap_or_else(|| {
            let trace = fields.trace.unwrap_or_else(fresh);
            let sampled = fields.sampled.unwrap_or_else(|| self.0.samples(trace));
            sampled.then_some((trace, fields.parent))
        });
        let open = match above {
            Some(above) => Open::Recorded(Box::new(Recording::new(span.name(), above, fields))),
            None => Open::Unrecorded,
        };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Open::Recorded(recording)) = span.extensions_mut().get_mut::<Open>() {
            recording.record(|fields| values.record(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else { return };
        if let Some(Open::Recorded(recording)) = span.extensions_mut().get_mut::<Open>() {
            let mut fields = Fields::default();
            event.record(&mut fields);
            recording.event(fields, event.metadata().level().as_str());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(Open::Recorded(recording)) = span.extensions_mut().remove::<Open>() {
            self.0.finished(recording.close());
        }
    }
}
