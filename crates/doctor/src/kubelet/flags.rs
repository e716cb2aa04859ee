//! The kubelet's command line.

use std::collections::BTreeMap;

/// The flags of a command line; of several with one name the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(BTreeMap<String, String>);

impl Flags {
    /// Parses `--name=value`, `--name value` and `--name` (`true`).
    pub(crate) fn parse(arguments: &[String]) -> Self {
        let mut flags = BTreeMap::new();
        let mut arguments = arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let value = arguments.next_if(|next| !next.starts_with("--"));
                    (flag, value.map_or_else(|| "true".to_owned(), String::clone))
                }
            };
            // pflag treats both as the same.
            flags.insert(name.replace('_', "-"), value);
        }
        Self(flags)
    }

    /// Returns the value of a flag.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_flag_is_parsed() {
        let arguments = ["--a=1", "--b", "2", "--c", "--d_e", "x", "--a=3"].map(str::to_owned);
        let flags = Flags::parse(&arguments);
        assert_eq!(
            ["a", "b", "c", "d-e", "f"].map(|name| flags.get(name)),
            [Some("3"), Some("2"), Some("true"), Some("x"), None]
        );
    }
}
