//! The response to a scrape, in both formats that Prometheus supports.

use std::fmt::Write;

use crate::{HistogramSnapshot, Kind, Metric};

/// The format of a [`Page`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text exposition 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns the format that an `Accept` header prefers; the older format, which all clients support, if it names
    /// neither.
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

    /// Returns the content type of the response.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub enum SampleValue {
    /// An unsigned integer, written exactly.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating-point number: seconds, ratios.
    Float(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<usize> for SampleValue {
    fn from(value: usize) -> Self {
        Self::Unsigned(value as u64)
    }
}

impl From<i64> for SampleValue {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for SampleValue {
    fn from(value: bool) -> Self {
        Self::Unsigned(value.into())
    }
}

/// Builds the response to a scrape. Families may have any order, but the formats require that each occurs once.
#[derive(Debug)]
pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    /// Creates an empty page.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, text: String::with_capacity(64 << 10) }
    }

    /// Starts a family, whose samples follow.
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

    /// Returns the complete text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family whose samples are being added.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    metric: &'a Metric,
}

impl Family<'_> {
    /// Adds a sample; `values` are the values of the metric's labels, in their order.
    pub fn value(&mut self, values: &[&str], value: impl Into<SampleValue>) -> &mut Self {
        self.text.push_str(self.metric.name);
        self.text.push_str(match self.metric.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        });
        self.labels(values, None);
        self.sample_value(value.into());
        self
    }

    /// Adds all samples of a histogram.
    pub fn histogram(&mut self, values: &[&str], snapshot: &HistogramSnapshot) -> &mut Self {
        for (bound, count) in &snapshot.buckets {
            self.bucket(values, &seconds(*bound), *count);
        }
        self.bucket(values, "+Inf", snapshot.count);
        for (suffix, value) in
            [("_sum", SampleValue::Float(snapshot.sum as f64 / 1e9)), ("_count", snapshot.count.into())]
        {
            self.text.push_str(self.metric.name);
            self.text.push_str(suffix);
            self.labels(values, None);
            self.sample_value(value);
        }
        self
    }

    fn bucket(&mut self, values: &[&str], bound: &str, count: u64) {
        self.text.push_str(self.metric.name);
        self.text.push_str("_bucket");
        self.labels(values, Some(bound));
        self.sample_value(count.into());
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

    fn sample_value(&mut self, value: SampleValue) {
        match value {
            SampleValue::Unsigned(value) => put(self.text, format_args!(" {value}\n")),
            SampleValue::Signed(value) => put(self.text, format_args!(" {value}\n")),
            SampleValue::Float(value) => put(self.text, format_args!(" {value}\n")),
        }
    }
}

/// Formats a bound in seconds. OpenMetrics requires a float, and both formats accept `1.0`.
fn seconds(nanoseconds: u64) -> String {
    format!("{:?}", nanoseconds as f64 / 1e9)
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}

/// Escapes backslashes and line feeds, and quotes if the format requires it.
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
