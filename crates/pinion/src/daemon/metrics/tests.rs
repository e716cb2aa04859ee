//! Checks that documentation, dashboard and alerts use the metrics that exist.

use std::{collections::BTreeSet, fs, path::PathBuf};

use telemetry::Kind;

use super::catalogue::ALL;

const BEGIN: &str = "<!-- begin: written by `PINION_WRITE_DOCS=1 cargo test -p pinion metrics` -->\n";
const END: &str = "<!-- end -->";

fn repository(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(repository(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the table of metrics for `docs/metrics.md`.
fn table() -> String {
    let rows = ALL.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", metric.sample(), metric.kind.name(), labels.join(", "), metric.help)
    });
    format!("\n| metric | kind | labels | meaning |\n|---|---|---|---|\n{}\n", rows.collect::<String>())
}

#[test]
fn every_metric_is_documented() {
    let text = read("docs/metrics.md");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (written, after) = rest.split_once(END).expect("the end of the table");
    if std::env::var_os("PINION_WRITE_DOCS").is_some() {
        let whole = format!("{before}{BEGIN}{}{END}{after}", table());
        fs::write(repository("docs/metrics.md"), whole).expect("docs/metrics.md can be written");
    } else {
        assert_eq!(written, table(), "run the command above the table");
    }
}

/// Returns the words of a text that look like names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("pinion_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Returns every name that a query may use.
fn known() -> BTreeSet<String> {
    let names = |metric: &telemetry::Metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].map(|suffix| metric.sample() + suffix).to_vec(),
        _ => vec![metric.sample()],
    };
    ALL.iter().flat_map(names).collect()
}

#[test]
fn dashboard_and_alerts_use_existing_metrics() {
    for file in ["dist/grafana/pinion.json", "dist/prometheus/pinion.rules.yaml"] {
        let (used, known) = (names(&read(file)), known());
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(used.len() > 5 && unknown.is_empty(), "{file}: unknown metrics {unknown:?}");
    }
}

#[test]
fn the_dashboard_shows_every_metric_except_constant_ones() {
    let used = names(&read("dist/grafana/pinion.json"));
    let constant = ["process_max_fds", "process_threads", "process_start_time_seconds", "process_virtual_memory_bytes"];
    let shown = |metric: &&telemetry::Metric| {
        constant.contains(&metric.name) || used.iter().any(|name| name.starts_with(&metric.sample()))
    };
    let missing: Vec<_> = ALL.iter().filter(|metric| !shown(metric)).map(|metric| metric.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_dashboard_is_json_with_unique_panel_ids() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("dist/grafana/pinion.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert!(panels.len() > 20 && ids.len() == panels.len());
    assert!(panels.iter().all(|panel| panel["type"] == "row" || panel["targets"][0]["expr"].is_string()));
}
