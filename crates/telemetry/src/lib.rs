//! Counters, gauges and histograms for the metrics of the daemon.
//!
//! ```text
//! pod, image, network, netns, cri                     pinion
//!   a struct of Counter, Gauge, Histogram  ──read──▶  names, labels, help ──▶ Page ──▶ /metrics
//!   (atomics, created by `const fn`)                  (one catalogue)
//! ```
//!
//! A library counts events in plain fields of a plain struct. It knows no metric names, registry or exporter, and its
//! tests read the fields. The exporter reads the struct on request and assigns the metric names. So there is one place
//! that lists every metric, and nothing is wired by strings at run time.
//!
//! # Cost
//! [`Counter::add`] and the methods of [`Gauge`] are one relaxed atomic operation, [`Histogram::observe`] two and a
//! search in its bounds: a few nanoseconds, without locks and allocations. A [`Histogram`] with 18 bounds takes 160
//! bytes.
//!
//! # Consistency
//! Every value is correct by itself, and counters never decrease. Two values that are read one after the other may
//! differ by events in between. The count of a histogram is the sum of its buckets, so these always agree.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use telemetry::{Counter, Format, Histogram, Kind, Metric, Page, bounds};
//!
//! #[derive(Default)]
//! struct ImageMetrics { pulls: Counter, duration: Histogram }
//! let metrics = ImageMetrics { pulls: Counter::new(), duration: Histogram::new(&bounds::REQUEST) };
//! metrics.pulls.add(1);
//! metrics.duration.observe(Duration::from_millis(30));
//!
//! const PULLS: Metric = Metric { name: "image_pulls", kind: Kind::Counter, labels: &["outcome"], help: "Pulls." };
//! let mut page = Page::new(Format::OpenMetrics);
//! page.family(&PULLS).value(&["ok"], metrics.pulls.get());
//! assert!(page.finish().contains("image_pulls_total{outcome=\"ok\"} 1\n"));
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bounds;
mod counter;
mod gauge;
mod histogram;
mod metric;
mod page;

pub use counter::Counter;
pub use gauge::{Gauge, GaugeGuard};
pub use histogram::{Histogram, HistogramSnapshot};
pub use metric::{Kind, Metric};
pub use page::{Family, Format, Page, SampleValue};
