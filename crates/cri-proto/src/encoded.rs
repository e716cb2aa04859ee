//! Responses with many rows, pre-encoded in their wire format.
//!
//! Every `List…Response` of the CRI that grows with the node, and every message of the corresponding `Stream…` RPC, has
//! one repeated field with number 1. So a row that was encoded once can be copied into any of them: a list of a
//! thousand pods takes a thousand copies instead of tens of thousands of small allocations.

use std::{marker::PhantomData, sync::Arc};

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, encode_key, encode_varint, skip_field},
};

use crate::v1;

/// Number of the repeated field of all these responses.
const ROWS: u32 = 1;

/// An encoded row: its key, its length, and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(Bytes);

impl Row {
    /// Encodes a message as a row.
    pub fn encode(message: &impl Message) -> Self {
        let mut bytes = Vec::with_capacity(message.encoded_len() + 12);
        encode_key(ROWS, WireType::LengthDelimited, &mut bytes);
        encode_varint(message.encoded_len() as u64, &mut bytes);
        message.encode_raw(&mut bytes);
        Self(bytes.into())
    }

    /// Creates a row from a message that is already encoded, in several parts.
    pub fn from_encoded(parts: &[&[u8]]) -> Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut bytes = Vec::with_capacity(length + 12);
        encode_key(ROWS, WireType::LengthDelimited, &mut bytes);
        encode_varint(length as u64, &mut bytes);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Self(bytes.into())
    }

    /// Returns the size of the row in a response, in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A response of rows, which has the same wire format as `T`.
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
    /// Decodes the rows to the message that a client receives.
    ///
    /// # Errors
    /// When the rows are not rows of this message.
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

    /// Skips the field, because a server never decodes responses.
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

macro_rules! responses {
    ($($message:ident),* $(,)?) => {
        $(
            #[doc = concat!("[`v1::", stringify!($message), "`], encoded.")]
            pub type $message = Encoded<v1::$message>;
        )*
    };
}

responses!(
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
    fn rows_equal_the_encoded_message() {
        let pods: Vec<v1::PodSandbox> =
            ["a", "b"].map(|id| v1::PodSandbox { id: id.to_owned(), created_at: 7, ..Default::default() }).into();
        let rows: Vec<Row> = pods.iter().map(Row::encode).collect();
        let list = ListPodSandboxResponse::from(rows.clone());
        assert_eq!(list.decode_rows().unwrap(), v1::ListPodSandboxResponse { items: pods.clone() });
        assert_eq!(list.encode_to_vec(), v1::ListPodSandboxResponse { items: pods.clone() }.encode_to_vec());
        let stream = StreamPodSandboxesResponse::from(rows).decode_rows().unwrap();
        assert_eq!(stream, v1::StreamPodSandboxesResponse { pod_sandboxes: pods.clone() });
        let encoded = pods[0].encode_to_vec();
        assert_eq!(Row::from_encoded(&[&encoded[..1], &encoded[1..]]), Row::encode(&pods[0]));
    }

    #[test]
    fn all_these_responses_have_their_rows_in_field_one() {
        let metrics = v1::PodSandboxMetrics { pod_sandbox_id: "p".into(), ..Default::default() };
        let stats = v1::ContainerStats { cpu: Some(v1::CpuUsage::default()), ..Default::default() };
        let row = |message| vec![message];
        let list = ListPodSandboxMetricsResponse::from(row(Row::encode(&metrics)));
        assert_eq!(list.decode_rows().unwrap().pod_metrics, std::slice::from_ref(&metrics));
        let stream = StreamPodSandboxMetricsResponse::from(row(Row::encode(&metrics)));
        assert_eq!(stream.decode_rows().unwrap().pod_sandbox_metrics, [metrics]);
        let list = ListContainerStatsResponse::from(row(Row::encode(&stats)));
        assert_eq!(list.decode_rows().unwrap().stats, std::slice::from_ref(&stats));
        let stream = StreamContainerStatsResponse::from(row(Row::encode(&stats)));
        assert_eq!(stream.decode_rows().unwrap().container_stats, [stats]);
        let container = v1::Container { id: "c".into(), ..Default::default() };
        let list = ListContainersResponse::from(row(Row::encode(&container)));
        assert_eq!(list.decode_rows().unwrap().containers, std::slice::from_ref(&container));
        let stream = StreamContainersResponse::from(row(Row::encode(&container)));
        assert_eq!(stream.decode_rows().unwrap().containers, [container]);
        let pod = v1::PodSandboxStats { attributes: Some(Default::default()), ..Default::default() };
        let list = ListPodSandboxStatsResponse::from(row(Row::encode(&pod)));
        assert_eq!(list.decode_rows().unwrap().stats, std::slice::from_ref(&pod));
        let stream = StreamPodSandboxStatsResponse::from(row(Row::encode(&pod)));
        assert_eq!(stream.decode_rows().unwrap().pod_sandbox_stats, [pod]);
    }
}
