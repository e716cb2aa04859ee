//! Parses attributes of replies. The kernel is trusted, but bounds are checked so that a wrong offset of ours does not
//! cause a panic.

/// Iterates over the attributes in `bytes`, with their types without flags.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute of a type.
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// Decodes a string and strips its final zero.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Batch;

    #[test]
    fn encoded_attributes_are_decoded() {
        let mut batch = Batch::new();
        batch.message(16, 0, &[0; 16], |m| {
            m.text(3, "eth0");
            m.nest(18, |m| m.number(7, 0x0102_0304));
            m.byte(5, 9);
        });
        let bytes = &batch.buffer[32..];
        assert_eq!(text(find(bytes, 3).unwrap()), "eth0");
        assert_eq!(find(find(bytes, 18).unwrap(), 7).unwrap(), 0x0102_0304u32.to_ne_bytes());
        assert_eq!(find(bytes, 5).unwrap(), [9]);
        assert_eq!(batch.buffer[0..4], u32::try_from(batch.buffer.len()).unwrap().to_ne_bytes());
    }

    #[test]
    fn invalid_lengths_end_the_iteration() {
        for broken in [&[0u8][..], &[3, 0, 1, 0], &[0, 0, 0, 0], &[200, 0, 1, 0, 1], &[8, 0, 1, 0, 1]] {
            assert_eq!(attributes(broken).count(), 0, "{broken:?}");
        }
    }
}
