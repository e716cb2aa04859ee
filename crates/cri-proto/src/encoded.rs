//! Answers of many rows, as the bytes they are sent as.
//!
//! Every `List…Response` of the CRI that grows with the node, and every message of the `Stream…` RPC beside it, is one
//! repeated field with number 1. So a row that was encoded once can be copied into any of them, and a list of a
//! thousand pods is a thousand copies instead of tens of thousands of small allocations.

use std::{marker::PhantomData, sync::Arc};

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, encode_key, encode_varint, skip_field},
};

use crate::v1;

/// The repeated field of every such answer.
const ROWS: u32 = 1;

/// One row: its key, its length, and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(Bytes);

impl Row {
    /// A message as a row.
    pub fn of(message: &impl Message) -> Self {
        let mut bytes = Vec::with_capacity(message.encoded_len() + 12);
        encode_key(ROWS, WireType::LengthDelimited, &mut bytes);
        encode_varint(message.encoded_len() as u64, &mut bytes);
        message.encode_raw(&mut bytes);
        Self(bytes.into())
    }

    /// A message that is encoded already, in parts.
    pub fn of_encoded(parts: &[&[u8]]) -> Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut bytes = Vec::with_capacity(length + 12);
        encode_key(ROWS, WireType::LengthDelimited, &mut bytes);
        encode_varint(length as u64, &mut bytes);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Self(bytes.into())
    }

    /// How long it is in an answer, bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// An answer of rows, on the wire the same as `T`.
#[derive(Clone, Debug)]
pub struct Encoded<T> {
    rows: Arc<[Row]>,
    of: PhantomData<fn() -> T>,
}

impl<T> Default for Encoded<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T> From<Vec<Row>> for Encoded<T> {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows: rows.into(), of: PhantomData }
    }
}

impl<T> From<Arc<[Row]>> for Encoded<T> {
    fn from(rows: Arc<[Row]>) -> Self {
        Self { rows, of: PhantomData }
    }
}

impl<T: Message + Default> Encoded<T> {
    /// The message that its reader sees.
    ///
    /// # Errors
    /// When the rows are no rows of it.
    pub fn decode_rows(&self) -> Result<T, DecodeError> {
        T::decode(self.encode_to_vec().as_slice())
    }
}

impl<T> Message for Encoded<T> {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        for row in self.rows.iter() {
            buffer.put_slice(&row.0);
        }
    }

    fn encoded_len(&self) -> usize {
        self.rows.iter().map(Row::len).sum()
    }

    /// Nothing reads an answer on the server's side.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buffer, context)
    }

    fn clear(&mut self) {
        self.rows = Arc::default();
    }
}

macro_rules! answers {
    ($($message:ident),* $(,)?) => {
        $(
            #[doc = concat!("[`v1::", stringify!($message), "`], encoded.")]
            pub type $message = Encoded<v1::$message>;
        )*
    };
}

answers!(
    ListPodSandboxResponse,
    ListContainersResponse,
    ListContainerStatsResponse,
    ListPodSandboxStatsResponse,
    ListPodSandboxMetricsResponse,
    StreamPodSandboxesResponse,
    StreamContainersResponse,
    StreamContainerStatsResponse,
    StreamPodSandboxStatsResponse,
    StreamPodSandboxMetricsResponse,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_message() {
        let pods: Vec<v1::PodSandbox> =
            ["a", "b"].map(|id| v1::PodSandbox { id: id.to_owned(), created_at: 7, ..Default::default() }).into();
        let rows: Vec<Row> = pods.iter().map(Row::of).collect();
        let list = ListPodSandboxResponse::from(rows.clone());
        assert_eq!(list.decode_rows().unwrap(), v1::ListPodSandboxResponse { items: pods.clone() });
        assert_eq!(list.encode_to_vec(), v1::ListPodSandboxResponse { items: pods.clone() }.encode_to_vec());
        let stream = StreamPodSandboxesResponse::from(rows).decode_rows().unwrap();
        assert_eq!(stream, v1::StreamPodSandboxesResponse { pod_sandboxes: pods.clone() });
        let encoded = pods[0].encode_to_vec();
        assert_eq!(Row::of_encoded(&[&encoded[..1], &encoded[1..]]), Row::of(&pods[0]));
    }

    #[test]
    fn every_such_answer_has_its_rows_in_field_one() {
        let metrics = v1::PodSandboxMetrics { pod_sandbox_id: "p".into(), ..Default::default() };
        let stats = v1::ContainerStats { cpu: Some(v1::CpuUsage::default()), ..Default::default() };
        let row = |message| vec![message];
        let list = ListPodSandboxMetricsResponse::from(row(Row::of(&metrics)));
        assert_eq!(list.decode_rows().unwrap().pod_metrics, std::slice::from_ref(&metrics));
        let stream = StreamPodSandboxMetricsResponse::from(row(Row::of(&metrics)));
        assert_eq!(stream.decode_rows().unwrap().pod_sandbox_metrics, [metrics]);
        let list = ListContainerStatsResponse::from(row(Row::of(&stats)));
        assert_eq!(list.decode_rows().unwrap().stats, std::slice::from_ref(&stats));
        let stream = StreamContainerStatsResponse::from(row(Row::of(&stats)));
        assert_eq!(stream.decode_rows().unwrap().container_stats, [stats]);
        let container = v1::Container { id: "c".into(), ..Default::default() };
        let list = ListContainersResponse::from(row(Row::of(&container)));
        assert_eq!(list.decode_rows().unwrap().containers, std::slice::from_ref(&container));
        let stream = StreamContainersResponse::from(row(Row::of(&container)));
        assert_eq!(stream.decode_rows().unwrap().containers, [container]);
        let pod = v1::PodSandboxStats { attributes: Some(Default::default()), ..Default::default() };
        let list = ListPodSandboxStatsResponse::from(row(Row::of(&pod)));
        assert_eq!(list.decode_rows().unwrap().stats, std::slice::from_ref(&pod));
        let stream = StreamPodSandboxStatsResponse::from(row(Row::of(&pod)));
        assert_eq!(stream.decode_rows().unwrap().pod_sandbox_stats, [pod]);
    }
}
