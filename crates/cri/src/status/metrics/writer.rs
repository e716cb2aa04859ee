use cri_proto::v1::MetricType;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::families::{Family, LABELS};

/// Tag in `PodSandboxMetrics` and in `ContainerMetrics`.
const METRICS: u32 = 2;
/// Tags in `Metric`.
const NAME: u32 = 1;
const TIMESTAMP: u32 = 2;
const KIND: u32 = 3;
const LABEL: u32 = 4;
const VALUE: u32 = 5;

/// Nanoseconds per second. Values of the CRI are integers, so times are whole seconds.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Encodes metrics that share the first labels and the timestamp.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The encoded values of [`LABELS`].
    labels: Vec<u8>,
    /// The encoded time of the measurement.
    timestamp: Vec<u8>,
    /// Buffer for one metric.
    metric: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, values: [&str; LABELS.len()], at: u64) -> Self {
        let (mut labels, mut timestamp) = (Vec::with_capacity(256), Vec::with_capacity(12));
        values.into_iter().for_each(|value| text(LABEL, value, &mut labels));
        encode_key(TIMESTAMP, WireType::Varint, &mut timestamp);
        encode_varint(at, &mut timestamp);
        Self { out, labels, timestamp, metric: Vec::with_capacity(512) }
    }

    /// Appends a metric with the values of its family's additional labels.
    pub(super) fn add<const N: usize>(&mut self, family: &Family, labels: [&str; N], value: u64) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let metric = &mut self.metric;
        metric.clear();
        text(NAME, family.name, metric);
        metric.extend_from_slice(&self.timestamp);
        if family.kind != MetricType::Counter {
            encode_key(KIND, WireType::Varint, metric);
            encode_varint(family.kind as u64, metric);
        }
        metric.extend_from_slice(&self.labels);
        labels.into_iter().for_each(|value| text(LABEL, value, metric));
        // `UInt64Value` has one field, which is omitted if it is 0.
        encode_key(VALUE, WireType::LengthDelimited, metric);
        if value == 0 {
            encode_varint(0, metric);
        } else {
            encode_varint(1 + encoded_len_varint(value) as u64, metric);
            encode_key(1, WireType::Varint, metric);
            encode_varint(value, metric);
        }
        nested(METRICS, metric, self.out);
    }
}

/// Appends a string field.
pub(super) fn text(tag: u32, value: &str, out: &mut Vec<u8>) {
    nested(tag, value.as_bytes(), out);
}

/// Appends a length-delimited field, that is, a message or string.
pub(super) fn nested(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
