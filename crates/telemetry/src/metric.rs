/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only increases; the names of its samples end with `_total`.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// Durations in seconds: samples `_bucket`, `_sum`, `_count`.
    Histogram,
    /// A constant 1, whose labels carry the information; the name of its sample ends with `_info`.
    Info,
}

impl Kind {
    /// Returns the type for `# TYPE` of OpenMetrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric family: name, kind, labels and help text.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name without the suffix of its kind, including the base unit: `pinion_image_pulls`.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// Help text of one sentence.
    pub help: &'static str,
}

impl Metric {
    /// Returns the name for queries: `pinion_image_pulls_total`. The samples of a histogram have an additional suffix
    /// `_bucket`, `_sum` or `_count`.
    #[must_use]
    pub fn sample(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }
}
