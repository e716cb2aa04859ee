//! List requests whose responses are counted in bytes and not decoded.

use tonic::{
    Request, Status,
    client::Grpc,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// A list request.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    Pods,
    Containers,
    ContainerStats,
    PodStats,
    Metrics,
    PodsStream,
    ContainersStream,
    ContainerStatsStream,
    PodStatsStream,
    MetricsStream,
    ImageFs,
}

impl List {
    pub(super) const ALL: [Self; 11] = [
        Self::Pods,
        Self::Containers,
        Self::ContainerStats,
        Self::PodStats,
        Self::Metrics,
        Self::PodsStream,
        Self::ContainersStream,
        Self::ContainerStatsStream,
        Self::PodStatsStream,
        Self::MetricsStream,
        Self::ImageFs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pods => "ListPodSandbox",
            Self::Containers => "ListContainers",
            Self::ContainerStats => "ListContainerStats",
            Self::PodStats => "ListPodSandboxStats",
            Self::Metrics => "ListPodSandboxMetrics",
            Self::PodsStream => "StreamPodSandboxes",
            Self::ContainersStream => "StreamContainers",
            Self::ContainerStatsStream => "StreamContainerStats",
            Self::PodStatsStream => "StreamPodSandboxStats",
            Self::MetricsStream => "StreamPodSandboxMetrics",
            Self::ImageFs => "ImageFsInfo",
        }
    }

    /// Sends the request once, and returns the length of the response in bytes.
    pub(super) async fn request(self, channel: &Channel) -> Result<usize, Status> {
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let service = if matches!(self, Self::ImageFs) { "ImageService" } else { "RuntimeService" };
        let path = PathAndQuery::try_from(format!("/runtime.v1.{service}/{}", self.name()));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        // All of these request messages are empty without a filter.
        let mut responses = grpc.server_streaming(Request::new(Vec::new()), path, CountingCodec).await?.into_inner();
        let mut length = 0;
        while let Some(message) = responses.message().await? {
            length += message;
        }
        Ok(length)
    }
}

struct CountingCodec;

impl Codec for CountingCodec {
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

impl Encoder for CountingCodec {
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

impl Decoder for CountingCodec {
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
