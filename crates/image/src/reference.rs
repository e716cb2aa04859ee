//! Image references, normalized as Docker and containerd do (distribution/reference grammar).

use std::fmt;

use crate::{Digest, Error};

/// Longest repository name that the distribution grammar allows.
const NAME_MAX: usize = 255;

/// `host/repository`, with a tag, a digest or both: whole and valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses a reference; what is missing is filled in: `busybox` → `docker.io/library/busybox:latest`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`], naming what is wrong.
    pub fn parse(text: &str, default_host: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let shown: String = text.chars().take(300).collect();
            Error::invalid(format!("image reference {shown:?}: {why}"))
        };
        if text.is_empty() {
            return Err(wrong("empty"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>().map_err(|error| wrong(&error.message))?)),
            None => (text, None),
        };
        let (name, tag) = split_tag(rest);
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("the tag must be 1 to 128 of [A-Za-z0-9_.-], not led by . or -"));
        }
        if digest.is_none() && tag.is_none() && is_id(name) {
            return Err(wrong("a name of 64 hex digits would be mistaken for an image id"));
        }
        let (host, path) = split_host(name, default_host);
        if !is_host(host) {
            return Err(wrong("the host is not valid"));
        }
        if path.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(wrong("the repository must be lower case"));
        }
        let host = if host == "index.docker.io" { "docker.io" } else { host };
        let repository =
            if host == "docker.io" && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
        if !repository.split('/').all(is_component) {
            return Err(wrong("the repository must be words of [a-z0-9] joined by . _ __ - and /"));
        }
        if host.len() + 1 + repository.len() > NAME_MAX {
            return Err(wrong("the name is longer than 255 characters"));
        }
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, None) => Some("latest".to_owned()),
            (None, Some(_)) => None,
        };
        Ok(Self { host: host.to_owned(), repository, tag, digest })
    }

    /// Registry host, maybe with a port: `docker.io`, `localhost:5000`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path in the registry: `library/busybox`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if there is one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if there is one: it decides.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// `host/repository`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// `host/repository:tag`. A reference by tag and digest is kept under its digest alone, as containerd has it.
    #[must_use]
    pub fn tagged(&self) -> Option<String> {
        match (&self.tag, &self.digest) {
            (Some(tag), None) => Some(format!("{}:{tag}", self.name())),
            _ => None,
        }
    }

    /// `host/repository@digest` for the digest of what was found.
    #[must_use]
    pub fn pinned(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.name())
    }

    /// What a registry is asked for: the digest, else the tag.
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

/// The last colon begins a tag unless a slash follows it (then it is a port).
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rfind(':') {
        Some(at) if !text[at..].contains('/') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    }
}

/// The first component is a host if it looks like one: a dot, a port, `localhost`, or upper case.
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

/// Words of `[a-z0-9]+` joined by `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let bytes = component.as_bytes();
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes.split(word).all(|joint| matches!(joint, b"" | b"." | b"_" | b"__") || joint.iter().all(|b| *b == b'-'))
}

fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
