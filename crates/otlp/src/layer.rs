//! The layer that records spans.

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
    span::{Recording, SpanState, new_id},
    state::Shared,
};

/// The layer of [`crate::Traces::layer`].
pub(crate) struct SpanLayer(pub(crate) Arc<Shared>);

/// The filter of the layer, which disables everything while export is off.
pub(crate) struct ExportFilter(pub(crate) Arc<Shared>);

impl ExportFilter {
    fn records(&self, metadata: &Metadata<'_>) -> bool {
        let max_level = if metadata.is_span() { Level::DEBUG } else { Level::WARN };
        *metadata.level() <= max_level && self.0.is_on() && self.0.is_ours(metadata.target())
    }
}

impl<S> Filter<S> for ExportFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.records(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.records(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.0.is_on() { LevelFilter::DEBUG } else { LevelFilter::OFF })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = span.parent().map(|parent| match parent.extensions().get::<SpanState>() {
            Some(SpanState::Recorded(recording)) => Some((recording.trace, Some(recording.id))),
            // The parent was opened while export was off, so its trace cannot be recorded completely.
            Some(SpanState::Unrecorded) | None => None,
        });
        let parent = parent.unwrap_or_else(|| {
            let trace = fields.trace.unwrap_or_else(new_id);
            let sampled = fields.sampled.unwrap_or_else(|| self.0.samples(trace));
            sampled.then_some((trace, fields.parent))
        });
        let state = match parent {
            Some(parent) => SpanState::Recorded(Box::new(Recording::new(span.name(), parent, fields))),
            None => SpanState::Unrecorded,
        };
        span.extensions_mut().insert(state);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanState::Recorded(recording)) = span.extensions_mut().get_mut::<SpanState>() {
            recording.record(|fields| values.record(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else { return };
        if let Some(SpanState::Recorded(recording)) = span.extensions_mut().get_mut::<SpanState>() {
            let mut fields = Fields::default();
            event.record(&mut fields);
            recording.event(fields, event.metadata().level().as_str());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(SpanState::Recorded(recording)) = span.extensions_mut().remove::<SpanState>() {
            self.0.finished(recording.close());
        }
    }
}
