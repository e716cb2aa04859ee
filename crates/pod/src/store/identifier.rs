//! Ids of objects, and lookup by a prefix of an id.

use std::collections::BTreeMap;

use crate::{Error, error::failed};

/// Returns a new random id of 64 hex digits.
pub(crate) fn generate() -> Result<String, Error> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(failed("getrandom"))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reports whether a string has the form of an id made by [`generate`].
pub(crate) fn is_generated(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Finds an object by its id or by an unambiguous prefix of it. `kind` is used in error messages.
pub(crate) fn find<'a, T>(map: &'a BTreeMap<String, T>, kind: &str, id: &str) -> Result<&'a T, Error> {
    if let Some(object) = map.get(id) {
        return Ok(object);
    }
    let mut matching = map.range(id.to_owned()..).take_while(|(key, _)| key.starts_with(id));
    match (matching.next(), matching.next()) {
        _ if id.is_empty() => Err(Error::invalid(format!("the id of the {kind} is empty"))),
        (Some((_, object)), None) => Ok(object),
        (Some(_), Some(_)) => Err(Error::invalid(format!("{kind} {id:?}: the prefix is ambiguous"))),
        (None, _) => Err(Error::not_found(kind, id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_unambiguous_prefix_finds_an_object() {
        let map: BTreeMap<String, u8> = [("abc1".into(), 1), ("abc2".into(), 2), ("b".into(), 3)].into();
        assert_eq!(*find(&map, "pod", "abc1").expect("the whole id"), 1);
        assert_eq!(*find(&map, "pod", "b").expect("a prefix"), 3);
        assert_eq!(find(&map, "pod", "abc").expect_err("ambiguous").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "").expect_err("empty").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "x").expect_err("none").kind, ErrorKind::NotFound);
        assert_eq!(generate().expect("id").len(), 64);
    }
}
