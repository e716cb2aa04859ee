//! Content digests: `sha256:` and 64 hex digits, nothing else.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A valid sha256 digest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

impl Digest {
    /// Computes the digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Computes the digest of a stream. Blocks.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn of_reader(mut reader: impl Read) -> io::Result<Self> {
        let (mut hasher, mut buffer) = (Hasher::new(), vec![0; 128 * 1024]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(count) => hasher.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the digest as `sha256:<hex>`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the 64 hex digits, which are a safe file name.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// Parses 64 hex digits.
    pub(crate) fn from_hex(hex: &str) -> Result<Self, Error> {
        format!("sha256:{hex}").parse()
    }

    /// Returns the first twelve hex digits, for messages and progress bars.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }

    /// Computes the chain id of a layer with this diff id on top of `parent` (OCI image spec, config, "Layer ChainID").
    #[must_use]
    pub fn chain(parent: Option<&Self>, diff_id: &Self) -> Self {
        match parent {
            None => diff_id.clone(),
            Some(parent) => Self::of(format!("{parent} {diff_id}").as_bytes()),
        }
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let valid = text
            .strip_prefix("sha256:")
            .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        match valid {
            true => Ok(Self(text.into())),
            false => {
                let excerpt: String = text.chars().take(80).collect();
                Err(Error::invalid(format!("{excerpt:?} is not a digest: sha256: and 64 hex digits are expected")))
            }
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.into()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Computes the sha256 digest of a stream.
#[derive(Clone)]
pub(crate) struct Hasher(ring::digest::Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        use fmt::Write;
        let mut text = String::from("sha256:");
        for byte in self.0.finish().as_ref() {
            let _ = write!(text, "{byte:02x}");
        }
        Digest(text.into())
    }
}
