/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in seconds: `_bucket`, `_sum`, `_count`.
    Histogram,
    /// Always 1: its labels are the message; its sample ends in `_info`.
    Info,
}

impl Kind {
    /// As `# TYPE` of OpenMetrics has it.
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

/// A family of samples: what they are called and what they mean.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Without the suffix of its kind: `pinion_image_pulls`, base units in the name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Names of its labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

impl Metric {
    /// The name that a query uses: `pinion_image_pulls_total`. A histogram's have `_bucket`, `_sum`, `_count` behind
    /// this.
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
