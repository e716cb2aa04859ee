//! The predefined dictionary of the compression of headers (SPDY/3, section 2.6.10.1).

use std::sync::LazyLock;

/// Words of the dictionary, each preceded by its length in four bytes.
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// The text after the words.
const REST: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized",
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable",
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,",
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

/// Adler-32 checksum of the dictionary, which identifies it in a zlib stream.
pub(super) const ADLER: u32 = 0xe3c6_a7c2;

/// The dictionary as bytes.
pub(super) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS {
        bytes.extend((word.len() as u32).to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(REST.as_bytes());
    bytes
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_has_the_specified_checksum() {
        let (mut low, mut high) = (1u32, 0u32);
        for byte in DICTIONARY.iter() {
            low = (low + u32::from(*byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!(high << 16 | low, ADLER);
        assert_eq!(DICTIONARY.len(), 1423);
    }
}
