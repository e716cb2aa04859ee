//! What a part of the daemon tells about itself in figures.
//!
//! ```text
//! pod, image, network, netns, cri                     pinion
//!   a struct of Counter, Gauge, Histogram  ──read──▶  names, labels, help ──▶ Page ──▶ /metrics
//!   (atomics, made by `const fn`)                     (one catalogue)
//! ```
//!
//! A library counts what happens in plain fields of a plain struct; it knows no name of a metric, no registry and no
//! exporter, and its tests read the fields. Whoever publishes them reads the struct when it is asked, and gives the
//! figures their names there: there is one place that lists every metric, and nothing is wired by strings at run time.
//!
//! # Cost
//! [`Counter::add`] and [`Gauge`]'s changes are one relaxed atomic addition, [`Histogram::observe`] two and a search in
//! its bounds: some nanoseconds, no lock, no allocation. A [`Histogram`] of 18 bounds takes 160 bytes.
//!
//! # Consistency
//! Every figure is right by itself and never goes back; two figures that are read one after the other may differ by
//! what happened between. A histogram's count is made of its buckets, so these always agree.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use telemetry::{Counter, Format, Histogram, Kind, Metric, Page, bounds};
//!
//! #[derive(Default)]
//! struct Figures { pulls: Counter, took: Histogram }
//! let figures = Figures { pulls: Counter::new(), took: Histogram::new(&bounds::REQUEST) };
//! figures.pulls.add(1);
//! figures.took.observe(Duration::from_millis(30));
//!
//! const PULLS: Metric = Metric { name: "image_pulls", kind: Kind::Counter, labels: &["outcome"], help: "Pulls." };
//! let mut page = Page::new(Format::OpenMetrics);
//! page.family(&PULLS).value(&["ok"], figures.pulls.get());
//! assert!(page.finish().contains("image_pulls_total{outcome=\"ok\"} 1\n"));
//! ```

#![forbid(unsafe_code)]

pub mod bounds;
mod counter;
mod gauge;
mod histogram;
mod metric;
mod page;

pub use counter::Counter;
pub use gauge::{Gauge, Held};
pub use histogram::{Histogram, Reading};
pub use metric::{Kind, Metric};
pub use page::{Family, Figure, Format, Page};
