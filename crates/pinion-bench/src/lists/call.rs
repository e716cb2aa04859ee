//! Calls whose answers are counted in bytes and not decoded.

use cri_proto::v1;
use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    Pods,
    Containers,
    ContainerStats,
    PodStats,
    Metrics,
}

impl List {
    pub(super) const ALL: [Self; 5] =
        [Self::Pods, Self::Containers, Self::ContainerStats, Self::PodStats, Self::Metrics];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pods => "ListPodSandbox",
            Self::Containers => "ListContainers",
            Self::ContainerStats => "ListContainerStats",
            Self::PodStats => "ListPodSandboxStats",
            Self::Metrics => "ListPodSandboxMetrics",
        }
    }

    /// Asks once, and says how long the answer is, bytes.
    pub(super) async fn ask(self, channel: &Channel) -> Result<usize, Status> {
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{}", self.name()));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        let request = match self {
            Self::Pods => v1::ListPodSandboxRequest::default().encode_to_vec(),
            Self::Containers => v1::ListContainersRequest::default().encode_to_vec(),
            Self::ContainerStats => v1::ListContainerStatsRequest::default().encode_to_vec(),
            Self::PodStats => v1::ListPodSandboxStatsRequest::default().encode_to_vec(),
            Self::Metrics => v1::ListPodSandboxMetricsRequest::default().encode_to_vec(),
        };
        Ok(grpc.unary(Request::new(request), path, Counting).await?.into_inner())
    }
}

struct Counting;

impl Codec for Counting {
    type Encode = Vec<u8>;
    type Decode = usize;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Counting {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Counting {
    type Item = usize;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<usize>, Status> {
        let length = bytes::Buf::remaining(buffer);
        bytes::Buf::advance(buffer, length);
        Ok(Some(length))
    }
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
