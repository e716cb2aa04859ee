//! A minimal SPDY/3.1 client.

use std::collections::HashMap;

use streaming::{
    Request,
    spdy::{Deflater, Inflater},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use super::{TestServer, upgrade, within_timeout};

pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The data and state of a stream.
#[derive(Debug, Default, Clone)]
pub(crate) struct StreamState {
    pub(crate) data: Vec<u8>,
    pub(crate) replied: bool,
    pub(crate) fin: bool,
    pub(crate) reset: Option<u32>,
}

pub(crate) struct Client {
    pub(crate) wire: Box<dyn Wire>,
    deflater: Deflater,
    inflater: Inflater,
    next: u32,
    pub(crate) streams: HashMap<u32, StreamState>,
    pub(crate) pings: Vec<u32>,
    /// Status of the server's GOAWAY.
    pub(crate) goaway: Option<u32>,
    pub(crate) closed: bool,
}

impl Client {
    pub(crate) async fn new(server: &TestServer, request: Request, protocol: Option<&str>) -> Self {
        let mut headers = vec![("Upgrade", "SPDY/3.1")];
        headers.extend(protocol.map(|name| ("X-Stream-Protocol-Version", name)));
        let (stream, head) = upgrade(&server.url(request), &headers).await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        if let Some(name) = protocol {
            assert!(head.contains(&format!("x-stream-protocol-version: {name}\r\n")), "{head}");
        }
        Self::on(stream)
    }

    pub(crate) fn on(wire: impl Wire + 'static) -> Self {
        Self {
            wire: Box::new(wire),
            deflater: Deflater::default(),
            inflater: Inflater::default(),
            next: 1,
            streams: HashMap::new(),
            pings: Vec::new(),
            goaway: None,
            closed: false,
        }
    }

    pub(crate) async fn control(&mut self, kind: u16, flags: u8, content: &[u8]) {
        let mut frame = vec![0x80, 3];
        frame.extend(kind.to_be_bytes());
        frame.extend((u32::from(flags) << 24 | content.len() as u32).to_be_bytes());
        frame.extend(content);
        self.wire.write_all(&frame).await.expect("send a frame");
    }

    /// Opens a stream without waiting for its reply.
    pub(crate) async fn syn(&mut self, headers: &[(&str, &str)]) -> u32 {
        let id = self.next;
        self.next += 2;
        let mut content = id.to_be_bytes().to_vec();
        content.extend([0; 6]);
        content.extend(self.deflater.block(headers));
        self.streams.insert(id, StreamState::default());
        self.control(1, 0, &content).await;
        id
    }

    /// Opens a stream and waits for its reply.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let id = self.syn(headers).await;
        self.eventually("a reply", |client| client.streams[&id].replied).await;
        id
    }

    pub(crate) async fn send(&mut self, stream: u32, data: &[u8], fin: bool) {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.extend((u32::from(fin) << 24 | data.len() as u32).to_be_bytes());
        frame.extend(data);
        self.wire.write_all(&frame).await.expect("send data");
    }

    pub(crate) async fn ping(&mut self, id: u32) {
        self.control(6, 0, &id.to_be_bytes()).await;
    }

    /// Reads one frame. Returns false at the end of the connection.
    pub(crate) async fn take(&mut self) -> bool {
        let mut head = [0; 8];
        if self.wire.read_exact(&mut head).await.is_err() {
            self.closed = true;
            // The server waits until the client closes its end.
            let _ = self.wire.shutdown().await;
            return false;
        }
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut content = vec![0; length];
        self.wire.read_exact(&mut content).await.expect("a whole frame");
        if first >> 31 == 0 {
            let state = self.streams.get_mut(&first).expect("data of a stream that was opened");
            assert!(state.replied, "data of stream {first} before its reply");
            state.data.extend(content);
            state.fin |= head[4] & 1 != 0;
            return true;
        }
        let number = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().expect("four bytes"));
        match first & 0xffff {
            2 => {
                self.inflater.block(&content[4..]).expect("headers");
                self.streams.get_mut(&number(0)).expect("ours").replied = true;
            }
            3 => self.streams.get_mut(&number(0)).expect("ours").reset = Some(number(4)),
            6 => self.pings.push(number(0)),
            7 => self.goaway = Some(number(4)),
            9 => {}
            kind => panic!("a frame of kind {kind}"),
        }
        true
    }

    /// Reads frames until a condition is true.
    pub(crate) async fn eventually(&mut self, event: &str, mut condition: impl FnMut(&Self) -> bool) {
        within_timeout(event, async {
            while !condition(self) {
                assert!(self.take().await, "the connection ended before {event}");
            }
        })
        .await;
    }

    /// Reads frames until the connection ends.
    pub(crate) async fn drain(&mut self) {
        within_timeout("the end of the connection", async { while self.take().await {} }).await;
    }

    pub(crate) fn text(&self, stream: u32) -> String {
        String::from_utf8_lossy(&self.streams[&stream].data).into_owned()
    }
}

/// Creates a client on a TCP connection.
pub(crate) fn tcp(stream: TcpStream) -> Client {
    Client::on(stream)
}
