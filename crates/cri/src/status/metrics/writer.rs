use cri_proto::v1::MetricType;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::families::{Family, LABELS};

/// Of `PodSandboxMetrics` and of `ContainerMetrics`.
const METRICS: u32 = 2;
/// Of `Metric`.
const NAME: u32 = 1;
const TIMESTAMP: u32 = 2;
const KIND: u32 = 3;
const LABEL: u32 = 4;
const VALUE: u32 = 5;

/// Nanoseconds of a second: CRI's values are whole numbers, so seconds are.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Writes metrics that have their first labels and their time in common.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// [`LABELS`], encoded.
    labels: Vec<u8>,
    /// When they were measured, encoded.
    timestamp: Vec<u8>,
    /// One metric on its way.
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

    /// One metric, with the values of its family's own labels.
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
        // `UInt64Value`: its one field, unless it is 0.
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

/// A text field.
pub(super) fn text(tag: u32, value: &str, out: &mut Vec<u8>) {
    nested(tag, value.as_bytes(), out);
}

/// A message's or text's bytes as a field.
pub(super) fn nested(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
