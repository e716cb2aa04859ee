//! The text that a scrape reads, in both formats that Prometheus asks for.

use std::fmt::Write;

use crate::{Kind, Metric, Reading};

/// How a [`Page`] is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text exposition 0.0.4.
    Prometheus,
}

impl Format {
    /// What an `Accept` header prefers; none, or none of ours: the old format, which everybody reads.
    ///
    /// ```
    /// use telemetry::Format;
    /// let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    /// assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    /// assert_eq!(Format::accepted("*/*"), Format::Prometheus);
    /// ```
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        for entry in accept.split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            match kind {
                "application/openmetrics-text" => open = weight.max(open),
                "text/plain" => plain = weight.max(plain),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Of the answer.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// Written as it is, however large.
    Whole(u64),
    /// May be negative.
    Signed(i64),
    /// Seconds, shares.
    Real(f64),
}

impl From<u64> for Figure {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Figure {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<i64> for Figure {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Figure {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

/// A scrape's answer in the making. Families in any order, each once, as the formats demand.
#[derive(Debug)]
pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    /// Empty.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, text: String::with_capacity(64 << 10) }
    }

    /// Begins a family; its samples follow.
    pub fn family<'a>(&'a mut self, metric: &'a Metric) -> Family<'a> {
        let (name, kind) = match (self.format, metric.kind) {
            (Format::OpenMetrics, kind) => (metric.name.to_owned(), kind.name()),
            (Format::Prometheus, Kind::Info) => (metric.sample(), "gauge"),
            (Format::Prometheus, kind) => (metric.sample(), kind.name()),
        };
        let text = &mut self.text;
        put(text, format_args!("# HELP {name} "));
        escape(text, metric.help, self.format == Format::OpenMetrics);
        put(text, format_args!("\n# TYPE {name} {kind}\n"));
        if self.format == Format::OpenMetrics
            && let Some(unit) = ["seconds", "bytes"].into_iter().find(|unit| metric.name.ends_with(unit))
            && metric.kind != Kind::Info
        {
            put(text, format_args!("# UNIT {name} {unit}\n"));
        }
        Family { text, metric }
    }

    /// The whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    metric: &'a Metric,
}

impl Family<'_> {
    /// A sample; `values` are those of the metric's labels, in their order.
    pub fn value(&mut self, values: &[&str], figure: impl Into<Figure>) -> &mut Self {
        self.text.push_str(self.metric.name);
        self.text.push_str(match self.metric.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        });
        self.labels(values, None);
        self.figure(figure.into());
        self
    }

    /// All samples of a histogram.
    pub fn histogram(&mut self, values: &[&str], reading: &Reading) -> &mut Self {
        for (bound, count) in &reading.within {
            self.bucket(values, &seconds(*bound), *count);
        }
        self.bucket(values, "+Inf", reading.count);
        for (suffix, figure) in [("_sum", Figure::Real(reading.sum as f64 / 1e9)), ("_count", reading.count.into())] {
            self.text.push_str(self.metric.name);
            self.text.push_str(suffix);
            self.labels(values, None);
            self.figure(figure);
        }
        self
    }

    fn bucket(&mut self, values: &[&str], bound: &str, count: u64) {
        self.text.push_str(self.metric.name);
        self.text.push_str("_bucket");
        self.labels(values, Some(bound));
        self.figure(count.into());
    }

    fn labels(&mut self, values: &[&str], bound: Option<&str>) {
        debug_assert_eq!(values.len(), self.metric.labels.len(), "labels of {}", self.metric.name);
        let pairs =
            self.metric.labels.iter().copied().zip(values.iter().copied()).chain(bound.map(|bound| ("le", bound)));
        for (n, (name, value)) in pairs.enumerate() {
            put(self.text, format_args!("{}{name}=\"", if n == 0 { '{' } else { ',' }));
            escape(self.text, value, true);
            self.text.push('"');
        }
        if !values.is_empty() || bound.is_some() {
            self.text.push('}');
        }
    }

    fn figure(&mut self, figure: Figure) {
        match figure {
            Figure::Whole(value) => put(self.text, format_args!(" {value}\n")),
            Figure::Signed(value) => put(self.text, format_args!(" {value}\n")),
            Figure::Real(value) => put(self.text, format_args!(" {value}\n")),
        }
    }
}

/// A bound in seconds; OpenMetrics wants floats, and both formats read `1.0`.
fn seconds(nanoseconds: u64) -> String {
    format!("{:?}", nanoseconds as f64 / 1e9)
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(what);
}

/// Backslash and line feed, and quotes where the format wants it.
fn escape(text: &mut String, value: &str, quotes: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests;
