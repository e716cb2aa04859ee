//! Block I/O statistics in the format of runc's `Blkio`.

use cgroup::Group;
use serde_json::{Map, Value, json};

use super::pressure::pressure;

/// The tables and their v1 files; the first file with data is used.
const V1: [(&str, &[&str]); 8] = [
    (
        "ioServiceBytesRecursive",
        &["bfq.io_service_bytes_recursive", "throttle.io_service_bytes_recursive", "throttle.io_service_bytes"],
    ),
    ("ioServicedRecursive", &["bfq.io_serviced_recursive", "throttle.io_serviced_recursive", "throttle.io_serviced"]),
    ("ioQueueRecursive", &["bfq.io_queued_recursive", "io_queued_recursive"]),
    ("ioServiceTimeRecursive", &["bfq.io_service_time_recursive", "io_service_time_recursive"]),
    ("ioWaitTimeRecursive", &["bfq.io_wait_time_recursive", "io_wait_time_recursive"]),
    ("ioMergedRecursive", &["bfq.io_merged_recursive", "io_merged_recursive"]),
    ("ioTimeRecursive", &["bfq.time_recursive", "time_recursive"]),
    ("sectorsRecursive", &["bfq.sectors_recursive", "sectors_recursive"]),
];

pub(super) fn blkio(group: &Group) -> Value {
    let mut tables = Map::new();
    let mut add = |name: &str, rows: Vec<Value>| {
        if !rows.is_empty() {
            tables.insert(name.to_owned(), rows.into());
        }
    };
    if group.is_v2("blkio") {
        let text = group.read("blkio", "io.stat").unwrap_or_default();
        add("ioServiceBytesRecursive", v2_rows(&text, [("rbytes", "Read"), ("wbytes", "Write")]));
        add("ioServicedRecursive", v2_rows(&text, [("rios", "Read"), ("wios", "Write")]));
        if let Some(pressure) = pressure(group, "io") {
            tables.insert("psi".to_owned(), pressure);
        }
    } else {
        for (name, files) in V1 {
            let mut rows =
                files.iter().map(|file| v1_rows(&group.read("blkio", &format!("blkio.{file}")).unwrap_or_default()));
            add(name, rows.find(|rows| !rows.is_empty()).unwrap_or_default());
        }
    }
    tables.into()
}

fn row(device: &str, operation: &str, value: u64) -> Option<Value> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    let mut row = Map::new();
    // runc omits zeros.
    for (key, number) in [("major", major), ("minor", minor), ("value", value)] {
        if number != 0 {
            row.insert(key.to_owned(), json!(number));
        }
    }
    if !operation.is_empty() {
        row.insert("op".to_owned(), json!(operation));
    }
    Some(row.into())
}

/// Parses lines such as `8:0 Read 4096` or `8:0 4096`. The last line, a sum, has no device and is skipped.
fn v1_rows(text: &str) -> Vec<Value> {
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [device, operation, value] => row(device, operation, value.parse().ok()?),
            [device, value] => row(device, "", value.parse().ok()?),
            _ => None,
        }
    });
    rows.collect()
}

/// Parses lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`. `operations` maps keys to operations.
fn v2_rows(text: &str, operations: [(&str, &str); 2]) -> Vec<Value> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let device = words.next().unwrap_or_default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let operation = operations.iter().find(|(known, _)| *known == key).map(|(_, operation)| operation);
            rows.extend(operation.zip(value.parse().ok()).and_then(|(operation, value)| row(device, operation, value)));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_contain_device_and_operation() {
        assert_eq!(v1_rows("8:0 Read 4096\nTotal 4096\n"), [json!({"major": 8, "op": "Read", "value": 4096})]);
        let v2 = v2_rows(
            "259:1 rbytes=5 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
            [("rbytes", "Read"), ("wbytes", "Write")],
        );
        assert_eq!(v2[0], json!({"major": 259, "minor": 1, "op": "Read", "value": 5}));
        assert_eq!(v2[1], json!({"major": 259, "minor": 1, "op": "Write"}));
    }
}
