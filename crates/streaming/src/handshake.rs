//! What client and server agree on, by the headers of the client's request.

use hyper::{
    HeaderMap, StatusCode,
    header::{
        CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};

use crate::{
    Request,
    websocket::{self, Codec},
};

const SPDY: &str = "SPDY/3.1";
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_VERSIONS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// Names of the remote command protocols, the newest first.
const COMMAND: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V2),
    ("channel.k8s.io", Version::V1),
];
const PORT_FORWARD: &str = "portforward.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Names of the remote command protocols over WebSocket.
const COMMAND_CHANNELS: [(&str, Version, Codec); 6] = [
    ("v5.channel.k8s.io", Version::V4, Codec::Binary { closing: true }),
    ("v4.channel.k8s.io", Version::V4, Codec::Binary { closing: false }),
    ("v4.base64.channel.k8s.io", Version::V4, Codec::Base64),
    ("base64.v4.channel.k8s.io", Version::V4, Codec::Base64),
    ("channel.k8s.io", Version::V1, Codec::Binary { closing: false }),
    ("base64.channel.k8s.io", Version::V1, Codec::Base64),
];
const PORT_CHANNELS: [(&str, Codec); 3] = [
    ("v4.channel.k8s.io", Codec::Binary { closing: false }),
    ("v4.base64.channel.k8s.io", Codec::Base64),
    ("base64.v4.channel.k8s.io", Codec::Base64),
];

/// How a command's end is told, and whether its terminal has a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
    /// With sizes of terminals.
    V3,
    /// With exit codes.
    V4,
}

/// What is spoken from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// SPDY, and for commands this version of the protocol within.
    Spdy(Version),
    /// WebSocket.
    Channels(Version, Codec),
    /// SPDY within WebSocket.
    Tunnel,
}

/// Why nothing is agreed on.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
    pub(crate) headers: Vec<(HeaderName, &'static str)>,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), headers: Vec::new() }
    }
}

/// What is agreed on, and the headers of the answer that says so.
pub(crate) fn agree(headers: &HeaderMap, request: &Request) -> Result<(Agreed, HeaderMap), Refusal> {
    let upgrade = values(headers, &UPGRADE);
    let upgrades = values(headers, &CONNECTION).iter().any(|value| value.eq_ignore_ascii_case("upgrade"));
    let to = |name: &str| upgrades && upgrade.iter().any(|value| value.eq_ignore_ascii_case(name));
    if to("websocket") {
        websocket(headers, request)
    } else if to(SPDY) {
        spdy(headers, request)
    } else {
        let why = format!("connect with `Connection: Upgrade` and `Upgrade: {SPDY}` or `Upgrade: websocket`");
        Err(Refusal {
            headers: vec![(UPGRADE, "SPDY/3.1, websocket")],
            ..Refusal::new(StatusCode::UPGRADE_REQUIRED, why)
        })
    }
}

fn spdy(headers: &HeaderMap, request: &Request) -> Result<(Agreed, HeaderMap), Refusal> {
    let known: &[(&'static str, Version)] = match request {
        Request::PortForward(_) => &[(PORT_FORWARD, Version::V4)],
        _ => &COMMAND,
    };
    let wanted = values(headers, &PROTOCOL_VERSION);
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static(SPDY));
    if wanted.is_empty() {
        // A client older than the header.
        return Ok((Agreed::Spdy(Version::V1), answer));
    }
    let Some((name, version)) = wanted.iter().find_map(|name| known.iter().find(|(known, _)| known == name)) else {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let why = format!("the client speaks {}; here {} are spoken", wanted.join(", "), names.join(", "));
        let accepted = names.into_iter().map(|name| (ACCEPTED_VERSIONS, name)).collect();
        return Err(Refusal { headers: accepted, ..Refusal::new(StatusCode::FORBIDDEN, why) });
    };
    answer.insert(PROTOCOL_VERSION, HeaderValue::from_static(name));
    Ok((Agreed::Spdy(*version), answer))
}

fn websocket(headers: &HeaderMap, request: &Request) -> Result<(Agreed, HeaderMap), Refusal> {
    if values(headers, &SEC_WEBSOCKET_VERSION) != ["13"] {
        let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, "version 13 of WebSocket is spoken");
        return Err(Refusal { headers: vec![(SEC_WEBSOCKET_VERSION, "13")], ..refusal });
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key: missing"))?;
    let wanted = values(headers, &SEC_WEBSOCKET_PROTOCOL);
    let (name, agreed) = match request {
        _ if wanted.is_empty() => ("", Agreed::Channels(Version::V1, Codec::Binary { closing: false })),
        Request::PortForward(_) => first(&wanted, |name| {
            if name == TUNNEL {
                return Some((TUNNEL, Agreed::Tunnel));
            }
            let known = PORT_CHANNELS.iter().find(|(known, _)| *known == name)?;
            Some((known.0, Agreed::Channels(Version::V4, known.1)))
        })?,
        _ => first(&wanted, |name| {
            let known = COMMAND_CHANNELS.iter().find(|(known, ..)| *known == name)?;
            Some((known.0, Agreed::Channels(known.1, known.2)))
        })?,
    };
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&websocket::accept(key)) {
        answer.insert(ACCEPT, accept);
    }
    if !name.is_empty() {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok((agreed, answer))
}

/// The first of the client's that is known.
fn first(
    wanted: &[&str],
    known: impl Fn(&str) -> Option<(&'static str, Agreed)>,
) -> Result<(&'static str, Agreed), Refusal> {
    wanted.iter().find_map(|name| known(name)).ok_or_else(|| {
        let why = format!("none of the client's protocols is spoken: {}", wanted.join(", "));
        Refusal::new(StatusCode::FORBIDDEN, why)
    })
}

/// All values of a header, in order.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
}
