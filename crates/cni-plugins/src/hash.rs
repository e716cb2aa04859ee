//! Names of chains and links that are derived from names which may be longer.

use sha2::{Digest, Sha512};

/// Returns a prefix and as many hexadecimal digits of the text's SHA-512 as fit into a length.
pub(crate) fn name(length: usize, prefix: &str, text: &str) -> String {
    let digest = Sha512::digest(text.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = format!("{prefix}{digits}");
    name.truncate(length);
    name
}
