//! Ids of objects, and lookup by a prefix of an id.

use std::{borrow::Borrow, collections::BTreeMap, fmt, ops::Bound, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

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

/// Defines the id of a kind of objects. Clones share the text.
macro_rules! id {
    ($(#[$attribute:meta])* $name:ident, $kind:literal) => {
        $(#[$attribute])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns a new random id.
            pub(crate) fn generate() -> Result<Self, Error> {
                Ok(Self(generate()?.into()))
            }

            /// Parses a whole id: 64 hex digits.
            ///
            /// # Errors
            /// `InvalidArgument` for any other text, such as a prefix of an id.
            pub fn parse(id: &str) -> Result<Self, Error> {
                match id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    true => Ok(Self(id.into())),
                    false => Err(Error::invalid(format!("{} {id:?}: an id has 64 hex digits", $kind))),
                }
            }

            /// Returns its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(id: &str) -> Result<Self, Error> {
                Self::parse(id)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(id: String) -> Result<Self, Error> {
                Self::parse(&id)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Selects<$name> for $name {}
    };
}

id! {
    /// The id of a pod, 64 hex digits.
    SandboxId, "pod"
}

id! {
    /// The id of a container, 64 hex digits.
    ContainerId, "container"
}

impl SandboxId {
    /// The pod of a container whose record is lost. No pod has this id, whose text is empty.
    pub(crate) fn unknown() -> Self {
        Self("".into())
    }

    /// Whether it is [`Self::unknown`].
    pub(crate) fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

/// What selects an object: its id, or the text of a client that may be a prefix of an id. The id of an object of
/// another kind does not.
pub trait Selects<Id>: AsRef<str> {}

impl Selects<SandboxId> for str {}
impl Selects<SandboxId> for String {}
impl Selects<ContainerId> for str {}
impl Selects<ContainerId> for String {}

/// The id of a pod or a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectId {
    /// A pod.
    Sandbox(SandboxId),
    /// A container.
    Container(ContainerId),
}

impl ObjectId {
    /// Returns its text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Sandbox(id) => id.as_str(),
            Self::Container(id) => id.as_str(),
        }
    }
}

/// Finds an object by its id or by an unambiguous prefix of it. `kind` is used in error messages.
pub(crate) fn find<'a, I: Ord + Borrow<str>, T>(
    map: &'a BTreeMap<I, T>,
    kind: &str,
    id: &(impl Selects<I> + ?Sized),
) -> Result<&'a T, Error> {
    let id = id.as_ref();
    if let Some(object) = map.get(id) {
        return Ok(object);
    }
    let from = map.range::<str, _>((Bound::Included(id), Bound::Unbounded));
    let mut matching = from.take_while(|(key, _)| Borrow::<str>::borrow(*key).starts_with(id));
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

    fn id(end: &str) -> SandboxId {
        SandboxId::parse(&format!("{end:0<64}")).expect("an id")
    }

    #[test]
    fn an_unambiguous_prefix_finds_an_object() {
        let map: BTreeMap<SandboxId, u8> = [(id("abc1"), 1), (id("abc2"), 2), (id("b"), 3)].into();
        assert_eq!(*find(&map, "pod", &id("abc1")).expect("the whole id"), 1);
        assert_eq!(*find(&map, "pod", "b").expect("a prefix"), 3);
        assert_eq!(find(&map, "pod", "abc").expect_err("ambiguous").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "").expect_err("empty").kind, ErrorKind::InvalidArgument);
        assert_eq!(find(&map, "pod", "x").expect_err("none").kind, ErrorKind::NotFound);
        assert_eq!(find(&map, "pod", &SandboxId::unknown()).expect_err("none").kind, ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_id_is_a_string_of_64_hex_digits_in_json() {
        let id = ContainerId::generate().expect("an id");
        assert!(is_generated(id.as_str()));
        let json = serde_json::to_string(&id).expect("JSON");
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<ContainerId>(&json).expect("an id"), id);
        assert!(serde_json::from_str::<ContainerId>("\"../x\"").is_err());
        assert!(ContainerId::parse(&"A".repeat(64)).is_ok(), "records of such a name are read");
        assert!(ContainerId::parse("").is_err() && ContainerId::parse(&"a".repeat(63)).is_err());
    }
}
