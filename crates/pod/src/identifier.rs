//! Ids, and finding an object by a part of one.

use std::collections::BTreeMap;

use crate::{Error, error::failed};

/// 64 hex digits nobody can guess.
pub(crate) fn fresh() -> Result<String, Error> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(failed("getrandom"))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether it could be one of [`fresh`].
pub(crate) fn is_fresh(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// By the whole id, or by its beginning where only one has it.
pub(crate) fn find<'a, T>(map: &'a BTreeMap<String, T>, what: &str, id: &str) -> Result<&'a T, Error> {
    if let Some(found) = map.get(id) {
        return Ok(found);
    }
    let mut matching = map.range(id.to_owned()..).take_while(|(key, _)| key.starts_with(id));
    match (matching.next(), matching.next()) {
        _ if id.is_empty() => Err(Error::invalid(format!("the id of the {what} is empty"))),
        (Some((_, found)), None) => Ok(found),
        (Some(_), Some(_)) => Err(Error::invalid(format!("{what} {id:?}: more than one begins so"))),
        (None, _) => Err(Error::not_found(what, id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_beginning_finds_when_it_is_the_only_one() {
        let map: BTreeMap<String, u8> = [("abc1".into(), 1), ("abc2".into(), 2), ("b".into(), 3)].into();
        assert_eq!(*find(&map, "pod", "abc1").expect("whole"), 1);
        assert_eq!(*find(&map, "pod", "b").expect("short"), 3);
        assert_eq!(find(&map, "pod", "abc").expect_err("two").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "").expect_err("empty").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "x").expect_err("none").kind, ErrorKind::NotFound);
        assert_eq!(fresh().expect("id").len(), 64);
    }
}
