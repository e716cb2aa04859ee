//! Protocol negotiation by the headers of the client's request.

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

/// Names of the remote command protocols, in order of preference.
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

/// Version of the remote command protocol, which determines the format of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
    /// Adds the resize stream.
    V3,
    /// Adds exit codes.
    V4,
}

/// The negotiated protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// SPDY, with this version of the remote command protocol.
    Spdy(Version),
    /// Channels over WebSocket.
    Channels(Version, Codec),
    /// SPDY over WebSocket.
    Tunnel,
}

/// The error response to a failed negotiation.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    pub(crate) headers: Vec<(HeaderName, &'static str)>,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), headers: Vec::new() }
    }
}

/// Returns the negotiated protocol and the headers of the response.
pub(crate) fn negotiate(headers: &HeaderMap, request: &Request) -> Result<(Protocol, HeaderMap), Refusal> {
    let upgrade = values(headers, &UPGRADE);
    let upgrades = values(headers, &CONNECTION).iter().any(|value| value.eq_ignore_ascii_case("upgrade"));
    let upgrade_to = |name: &str| upgrades && upgrade.iter().any(|value| value.eq_ignore_ascii_case(name));
    if upgrade_to("websocket") {
        websocket(headers, request)
    } else if upgrade_to(SPDY) {
        spdy(headers, request)
    } else {
        let reason = format!("connect with `Connection: Upgrade` and `Upgrade: {SPDY}` or `Upgrade: websocket`");
        Err(Refusal {
            headers: vec![(UPGRADE, "SPDY/3.1, websocket")],
            ..Refusal::new(StatusCode::UPGRADE_REQUIRED, reason)
        })
    }
}

fn spdy(headers: &HeaderMap, request: &Request) -> Result<(Protocol, HeaderMap), Refusal> {
    let known: &[(&'static str, Version)] = match request {
        Request::PortForward(_) => &[(PORT_FORWARD, Version::V4)],
        _ => &COMMAND,
    };
    let offered = values(headers, &PROTOCOL_VERSION);
    let mut response = HeaderMap::new();
    response.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.insert(UPGRADE, HeaderValue::from_static(SPDY));
    if offered.is_empty() {
        // Old clients do not send the header.
        return Ok((Protocol::Spdy(Version::V1), response));
    }
    let Some((name, version)) = offered.iter().find_map(|name| known.iter().find(|(known, _)| known == name)) else {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let reason = format!("unsupported protocols: {}; supported: {}", offered.join(", "), names.join(", "));
        let accepted = names.into_iter().map(|name| (ACCEPTED_VERSIONS, name)).collect();
        return Err(Refusal { headers: accepted, ..Refusal::new(StatusCode::FORBIDDEN, reason) });
    };
    response.insert(PROTOCOL_VERSION, HeaderValue::from_static(name));
    Ok((Protocol::Spdy(*version), response))
}

fn websocket(headers: &HeaderMap, request: &Request) -> Result<(Protocol, HeaderMap), Refusal> {
    if values(headers, &SEC_WEBSOCKET_VERSION) != ["13"] {
        let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, "only version 13 of WebSocket is supported");
        return Err(Refusal { headers: vec![(SEC_WEBSOCKET_VERSION, "13")], ..refusal });
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key: missing"))?;
    let offered = values(headers, &SEC_WEBSOCKET_PROTOCOL);
    let (name, protocol) = match request {
        _ if offered.is_empty() => ("", Protocol::Channels(Version::V1, Codec::Binary { closing: false })),
        Request::PortForward(_) => first(&offered, |name| {
            if name == TUNNEL {
                return Some((TUNNEL, Protocol::Tunnel));
            }
            let known = PORT_CHANNELS.iter().find(|(known, _)| *known == name)?;
            Some((known.0, Protocol::Channels(Version::V4, known.1)))
        })?,
        _ => first(&offered, |name| {
            let known = COMMAND_CHANNELS.iter().find(|(known, ..)| *known == name)?;
            Some((known.0, Protocol::Channels(known.1, known.2)))
        })?,
    };
    let mut response = HeaderMap::new();
    response.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&websocket::accept(key)) {
        response.insert(ACCEPT, accept);
    }
    if !name.is_empty() {
        response.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok((protocol, response))
}

/// Returns the first protocol that the client offers and `known` supports.
fn first(
    offered: &[&str],
    known: impl Fn(&str) -> Option<(&'static str, Protocol)>,
) -> Result<(&'static str, Protocol), Refusal> {
    offered.iter().find_map(|name| known(name)).ok_or_else(|| {
        let reason = format!("unsupported protocols: {}", offered.join(", "));
        Refusal::new(StatusCode::FORBIDDEN, reason)
    })
}

/// Returns all values of a header, in order.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
}
