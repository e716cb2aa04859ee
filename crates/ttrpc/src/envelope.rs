//! The payload of messages.

/// Status codes of gRPC that have a meaning here.
pub mod code {
    /// The request is malformed, or one of its values is not permitted.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// The object does not exist.
    pub const NOT_FOUND: i32 = 5;
    /// Too many requests at once, or a bound is exceeded.
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    /// The object is not in a state in which this is possible.
    pub const FAILED_PRECONDITION: i32 = 9;
    /// The peer does not have this method.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// Payload of a request. Its metadata is ignored.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Full name of the service.
    #[prost(string, tag = "1")]
    pub service: String,
    /// Name of the method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded argument.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// Time that the caller waits for the answer, in nanoseconds; 0: no limit.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// Payload of a response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    /// Absent, or with code 0: the request succeeded.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The encoded answer.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// Outcome of a request (`google.rpc.Status`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// Code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The error, for people.
    #[prost(string, tag = "2")]
    pub message: String,
}
