//! `CNI_ARGS`: pairs of keys and values, separated by semicolons.

use serde_json::Value;

use crate::{Error, Request};

/// Most pairs that are accepted.
const PAIRS_MAX: usize = 256;

/// The pairs of `CNI_ARGS`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments(Vec<(String, String)>);

impl Arguments {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::Environment { variable: "CNI_ARGS", reason: reason.to_owned() };
        let mut pairs = Vec::new();
        for item in text.split(';').filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| invalid("an item has no equals sign"))?;
            pairs.push((key.to_owned(), value.to_owned()));
            if pairs.len() > PAIRS_MAX {
                return Err(invalid("too many items"));
            }
        }
        Ok(Self(pairs))
    }

    /// Returns the value of a key; `None` if it is missing or empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Parses a MAC address of six bytes, separated by colons or dashes.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], Error> {
    let invalid = || Error::config("mac", format!("{text:?} is not a MAC address such as 0a:58:0a:01:00:02"));
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts
            .next()
            .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
            .ok_or_else(invalid)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
    }
    if parts.next().is_some() { Err(invalid()) } else { Ok(mac) }
}

/// Returns the MAC address that `runtimeConfig`, `args` or `CNI_ARGS` request, in this order.
pub(crate) fn requested_mac(request: &Request) -> Result<Option<[u8; 6]>, Error> {
    let text = |section: Option<&Value>| {
        let mac = section.and_then(|section| section.get("mac")).and_then(Value::as_str);
        mac.filter(|mac| !mac.is_empty()).map(str::to_owned)
    };
    let runtime = text(request.config.get("runtimeConfig"));
    let args = || text(request.config.get("args").and_then(|args| args.get("cni")));
    runtime.or_else(args).or_else(|| request.mac_of_engine()).as_deref().map(mac).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_key_counts() {
        let arguments = Arguments::parse("IgnoreUnknown=1;MAC=a;K8S_POD_NAME=x=y;MAC=b;IP=").unwrap();
        assert_eq!((arguments.get("MAC"), arguments.get("K8S_POD_NAME")), (Some("b"), Some("x=y")));
        assert_eq!((arguments.get("IP"), arguments.get("none")), (None, None));
        assert!(Arguments::parse("a").is_err() && Arguments::parse(&"a=b;".repeat(PAIRS_MAX + 1)).is_err());
    }

    #[test]
    fn mac_addresses_are_parsed() {
        assert_eq!(mac("0a:58-0A:01:00:ff").unwrap(), [10, 0x58, 10, 1, 0, 255]);
        for bad in ["", "0a:58", "0a:58:0a:01:00:02:03", "g0:00:00:00:00:00", "+1:00:00:00:00:00"] {
            assert!(mac(bad).is_err(), "{bad:?}");
        }
    }
}
