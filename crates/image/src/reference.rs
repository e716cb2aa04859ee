//! Image references, normalized as Docker and containerd do (distribution/reference grammar).

use std::fmt;

use crate::{Digest, Error};

/// Longest repository name that the distribution grammar allows.
const NAME_MAX: usize = 255;

/// A complete, valid reference: `host/repository` with a tag, a digest or both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses a reference and fills in what is missing: `busybox` → `docker.io/library/busybox:latest`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`]; the message names what is not valid.
    pub fn parse(text: &str, default_host: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| {
            let excerpt: String = text.chars().take(300).collect();
            Error::invalid(format!("image reference {excerpt:?}: {reason}"))
        };
        if text.is_empty() {
            return Err(invalid("empty"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>().map_err(|error| invalid(&error.message))?)),
            None => (text, None),
        };
        let (name, tag) = split_tag(rest);
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("the tag must have 1 to 128 characters of [A-Za-z0-9_.-] and not start with . or -"));
        }
        if digest.is_none() && tag.is_none() && is_id(name) {
            return Err(invalid("a name of 64 hex digits would be mistaken for an image id"));
        }
        let (host, path) = split_host(name, default_host);
        if !is_host(host) {
            return Err(invalid("the host is not valid"));
        }
        if path.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(invalid("the repository must be lower case"));
        }
        let host = if host == "index.docker.io" { "docker.io" } else { host };
        let repository =
            if host == "docker.io" && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
        if !repository.split('/').all(is_component) {
            return Err(invalid("the repository must consist of words of [a-z0-9] joined by . _ __ - and /"));
        }
        if host.len() + 1 + repository.len() > NAME_MAX {
            return Err(invalid("the name is longer than 255 characters"));
        }
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, None) => Some("latest".to_owned()),
            (None, Some(_)) => None,
        };
        Ok(Self { host: host.to_owned(), repository, tag, digest })
    }

    /// Returns the registry host, with its port if it has one: `docker.io`, `localhost:5000`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path in the registry: `library/busybox`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag, if there is one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest, if there is one. It takes precedence over the tag.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns `host/repository`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// Returns `host/repository:tag`. A reference with a tag and a digest is listed by its digest only, as in
    /// containerd.
    #[must_use]
    pub fn tagged(&self) -> Option<String> {
        match (&self.tag, &self.digest) {
            (Some(tag), None) => Some(format!("{}:{tag}", self.name())),
            _ => None,
        }
    }

    /// Returns `host/repository@digest` with the digest to which the reference was resolved.
    #[must_use]
    pub fn pinned(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.name())
    }

    /// Returns what is requested from a registry: the digest, else the tag.
    #[must_use]
    pub fn target(&self) -> &str {
        self.digest.as_ref().map(Digest::as_str).or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Splits off the tag. The last colon starts a tag, unless a slash follows it: then it starts a port.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rfind(':') {
        Some(at) if !text[at..].contains('/') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    }
}

/// Splits off the host. The first component is a host if it has a dot, a port or upper case, or is `localhost`.
fn split_host<'a>(name: &'a str, default_host: &'a str) -> (&'a str, &'a str) {
    match name.split_once('/') {
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.chars().any(|c| c.is_ascii_uppercase()) =>
        {
            (host, path)
        }
        _ => (default_host, name),
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], Some(&host[at + 1..])),
        _ => (host, None),
    };
    let name_ok = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        }),
    };
    name_ok && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Whether this is a path component: words of `[a-z0-9]+` joined by `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let bytes = component.as_bytes();
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes
            .split(word)
            .all(|separator| matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|b| *b == b'-'))
}

fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
