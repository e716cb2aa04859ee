//! A minimal WebSocket client.

use streaming::Request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{TestServer, upgrade, within_timeout};

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

pub(crate) struct Client {
    pub(crate) wire: TcpStream,
}

impl Client {
    pub(crate) async fn new(server: &TestServer, request: Request, protocol: Option<&str>) -> Self {
        let mut headers = vec![
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        headers.extend(protocol.map(|name| ("Sec-WebSocket-Protocol", name)));
        let (wire, head) = upgrade(&server.url(request), &headers).await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        match protocol {
            Some(name) => {
                let name = name.to_lowercase();
                assert!(head.contains(&format!("sec-websocket-protocol: {name}\r\n")), "{head}");
            }
            None => assert!(!head.contains("sec-websocket-protocol"), "{head}"),
        }
        Self { wire }
    }

    /// Sends a masked frame.
    pub(crate) async fn frame(&mut self, opcode: u8, last: bool, content: &[u8]) {
        let mut frame = vec![opcode | if last { 0x80 } else { 0 }];
        match content.len() {
            n @ 0..=125 => frame.push(0x80 | n as u8),
            n @ 126..=0xffff => {
                frame.push(0x80 | 126);
                frame.extend((n as u16).to_be_bytes());
            }
            n => {
                frame.push(0x80 | 127);
                frame.extend((n as u64).to_be_bytes());
            }
        }
        let mask = [0x12, 0x34, 0x56, 0x78];
        frame.extend(mask);
        frame.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.wire.write_all(&frame).await.expect("send a frame");
    }

    /// Sends a message on a channel.
    pub(crate) async fn send(&mut self, channel: u8, data: &[u8]) {
        let mut content = vec![channel];
        content.extend(data);
        self.frame(BINARY, true, &content).await;
    }

    /// Reads the next message; `None` at the end of the connection.
    pub(crate) async fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        if within_timeout("a frame", self.wire.read_exact(&mut head)).await.is_err() {
            // The server waits until the client closes its end.
            let _ = self.wire.shutdown().await;
            return None;
        }
        assert_eq!(head[0] & 0xf0, 0x80, "unfragmented frames without extensions");
        assert_eq!(head[1] & 0x80, 0, "frames of a server are not masked");
        let mut longer = vec![0; [0, 2, 8][usize::from(head[1]).saturating_sub(125).min(2)]];
        self.wire.read_exact(&mut longer).await.expect("a length");
        let length = match longer.len() {
            0 => usize::from(head[1]),
            _ => longer.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        };
        let mut content = vec![0; length];
        self.wire.read_exact(&mut content).await.expect("a whole frame");
        Some((head[0] & 0x0f, content))
    }

    /// Reads messages until the connection is closed. Returns the data of each channel, and the status of the closure.
    pub(crate) async fn all(&mut self) -> ([Vec<u8>; 5], u16) {
        let mut channels = <[Vec<u8>; 5]>::default();
        let mut status = 0;
        while let Some((opcode, content)) = self.take().await {
            match opcode {
                BINARY => channels[usize::from(content[0])].extend(&content[1..]),
                CLOSE => status = u16::from_be_bytes([content[0], content[1]]),
                other => panic!("a frame of kind {other}"),
            }
        }
        (channels, status)
    }
}
