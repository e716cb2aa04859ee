//! Requests of HTTP/1.1 (RFC 9112), as far as static files need them: without a body.

/// Longest request, from its first line to the empty one, in bytes.
pub(crate) const LENGTH_MAX: usize = 8192;
/// Most header fields.
const FIELDS_MAX: usize = 64;

/// A method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    /// A method that this server does not have.
    Other,
}

/// A valid request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Decoded path without the query; begins with `/`.
    pub(crate) path: String,
    /// The connection stays open after the answer.
    pub(crate) is_kept: bool,
}

/// What the beginning of a connection's data is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More is needed.
    Incomplete,
    /// A request of this many bytes.
    Complete(Request, usize),
    /// Not a request.
    Bad,
    /// The request is too long.
    TooLong,
}

/// Parses the first request.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let head = &bytes[..bytes.len().min(LENGTH_MAX)];
    match head.windows(4).position(|four| four == b"\r\n\r\n") {
        Some(length) => match parse_head(&head[..length]) {
            Some(request) => Parsed::Complete(request, length + 4),
            None => Parsed::Bad,
        },
        None if bytes.len() >= LENGTH_MAX => Parsed::TooLong,
        None => Parsed::Incomplete,
    }
}

fn parse_head(head: &[u8]) -> Option<Request> {
    let head = std::str::from_utf8(head).ok().filter(|head| head.bytes().all(is_text))?;
    let mut lines = head.split("\r\n");
    let mut parts = lines.next()?.split(' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !is_token(method) {
        return None;
    }
    let is_current = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return None,
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => Method::Other,
    };
    let fields = Fields::parse(lines)?;
    // Each request of HTTP/1.1 has exactly one, RFC 9112, 3.2.
    let has_host = fields.hosts == 1 || !is_current && fields.hosts == 0;
    // A body would be taken for the next request.
    if !has_host || fields.has_body && method != Method::Other {
        return None;
    }
    let is_kept = if is_current { !fields.close } else { fields.keep_alive };
    Some(Request { method, path: path(target)?, is_kept: is_kept && !fields.has_body })
}

/// The header fields that matter here.
#[derive(Debug, Default)]
struct Fields {
    hosts: usize,
    close: bool,
    keep_alive: bool,
    has_body: bool,
}

impl Fields {
    fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut fields = Self::default();
        for (number, line) in lines.enumerate() {
            let (name, value) = line.split_once(':').filter(|(name, _)| is_token(name) && number < FIELDS_MAX)?;
            let value = value.trim_matches([' ', '\t']);
            let has = |option: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(option));
            match name.to_ascii_lowercase().as_str() {
                "host" => fields.hosts += 1,
                "connection" => {
                    fields.close |= has("close");
                    fields.keep_alive |= has("keep-alive");
                }
                "content-length" => fields.has_body |= value.parse::<u64>().ok()? > 0,
                "transfer-encoding" => fields.has_body = true,
                _ => {}
            }
        }
        Some(fields)
    }
}

/// Returns the decoded path of a target: `/a%20b?c` or `http://host/a%20b?c`.
fn path(target: &str) -> Option<String> {
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    };
    let raw = target.split(['?', '#']).next().filter(|raw| raw.starts_with('/'))?;
    let (mut decoded, mut bytes) = (Vec::with_capacity(raw.len()), raw.bytes());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

/// Reports whether a byte may be in a line: no other control character than the ends of lines and tabulators.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\r' | b'\n') || !byte.is_ascii_control()
}

/// Reports whether a text is a token, RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    let is_special = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_special(byte))
}
