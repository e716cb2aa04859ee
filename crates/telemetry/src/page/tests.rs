use std::time::Duration;

use super::*;
use crate::{Histogram, bounds};

const PULLS: Metric =
    Metric { name: "x_pulls", kind: Kind::Counter, labels: &["image"], help: "A \"pull\"\nthat ended \\ not." };
const TOOK: Metric = Metric { name: "x_took_seconds", kind: Kind::Histogram, labels: &["rpc"], help: "Time." };
const BUILD: Metric = Metric { name: "x_build", kind: Kind::Info, labels: &["version"], help: "Build." };
const FREE: Metric = Metric { name: "x_free_bytes", kind: Kind::Gauge, labels: &[], help: "Free." };

fn page(format: Format) -> String {
    let histogram = Histogram::new(&bounds::TRANSFER);
    histogram.observe(Duration::from_millis(1500));
    let mut page = Page::new(format);
    page.family(&PULLS).value(&["a\"b\\c\nd"], 3u64).value(&["e"], u64::MAX);
    page.family(&TOOK).histogram(&["Pull"], &histogram.read());
    page.family(&BUILD).value(&["1.0"], 1u64);
    page.family(&FREE).value(&[], -5i64);
    page.finish()
}

#[test]
fn openmetrics_names_families_without_suffix_and_has_an_end_marker() {
    let text = page(Format::OpenMetrics);
    assert!(
        text.starts_with("# HELP x_pulls A \\\"pull\\\"\\nthat ended \\\\ not.\n# TYPE x_pulls counter\n"),
        "{text}"
    );
    assert!(
        text.contains("x_pulls_total{image=\"a\\\"b\\\\c\\nd\"} 3\nx_pulls_total{image=\"e\"} 18446744073709551615\n")
    );
    assert!(text.contains("# TYPE x_took_seconds histogram\n# UNIT x_took_seconds seconds\n"));
    assert!(text.contains("# TYPE x_build info\nx_build_info{version=\"1.0\"} 1\n"));
    assert!(text.contains("# UNIT x_free_bytes bytes\nx_free_bytes -5\n# EOF\n"));
}

#[test]
fn the_older_format_names_families_like_their_samples() {
    let text = page(Format::Prometheus);
    assert!(text.starts_with("# HELP x_pulls_total A \"pull\"\\nthat ended"), "{text}");
    assert!(text.contains("# TYPE x_pulls_total counter\n"));
    assert!(text.contains("# TYPE x_build_info gauge\n"));
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
}

#[test]
fn buckets_are_cumulative() {
    let text = page(Format::OpenMetrics);
    assert!(text.contains("x_took_seconds_bucket{rpc=\"Pull\",le=\"1.0\"} 0\n"), "{text}");
    assert!(text.contains("x_took_seconds_bucket{rpc=\"Pull\",le=\"2.5\"} 1\n"));
    assert!(text.contains("x_took_seconds_bucket{rpc=\"Pull\",le=\"600.0\"} 1\n"));
    assert!(
        text.contains("le=\"+Inf\"} 1\nx_took_seconds_sum{rpc=\"Pull\"} 1.5\nx_took_seconds_count{rpc=\"Pull\"} 1\n")
    );
}

#[test]
fn the_format_is_the_one_that_the_client_prefers() {
    assert_eq!(Format::accepted(""), Format::Prometheus);
    assert_eq!(Format::accepted("text/plain"), Format::Prometheus);
    assert_eq!(Format::accepted("application/openmetrics-text; version=1.0.0; charset=utf-8"), Format::OpenMetrics);
    assert_eq!(Format::accepted("application/openmetrics-text;q=0.2,text/plain;q=0.9"), Format::Prometheus);
    assert_eq!(Format::accepted("application/openmetrics-text;q=0,text/html"), Format::Prometheus);
}
