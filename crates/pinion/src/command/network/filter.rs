//! Filters of networks, as Docker has them.

use std::str::FromStr;

use cri_proto::pinion::Network;

/// A filter. Filters of one kind are alternatives, except labels, which are all required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Driver(String),
    /// A part of the name.
    Name(String),
    /// The beginning of the id.
    Id(String),
    Label {
        name: String,
        value: Option<String>,
        /// Whether networks with the label are left out.
        is_excluded: bool,
    },
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("{text:?} is not driver=…, name=…, id=…, label=NAME[=VALUE] or label!=NAME[=VALUE]");
        let (key, value) = text.split_once('=').ok_or_else(unknown)?;
        let (key, is_excluded) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
        let (name, wanted) = value.split_once('=').map_or((value, None), |(name, value)| (name, Some(value)));
        match key {
            "label" if !name.is_empty() => {
                Ok(Self::Label { name: name.to_owned(), value: wanted.map(str::to_owned), is_excluded })
            }
            "driver" if !is_excluded => Ok(Self::Driver(value.to_owned())),
            "name" if !is_excluded => Ok(Self::Name(value.to_owned())),
            "id" if !is_excluded => Ok(Self::Id(value.to_owned())),
            _ => Err(unknown()),
        }
    }
}

/// Reports whether the filters accept a network.
pub(super) fn accepts(filters: &[Filter], network: &Network) -> bool {
    let one_of = |matches: &dyn Fn(&Filter) -> Option<bool>| {
        let mut outcomes = filters.iter().filter_map(matches).peekable();
        outcomes.peek().is_none() || outcomes.any(|accepted| accepted)
    };
    let driver = one_of(&|filter| match filter {
        Filter::Driver(driver) => Some(*driver == network.driver),
        _ => None,
    });
    let name = one_of(&|filter| match filter {
        Filter::Name(name) => Some(network.name.contains(name.as_str())),
        _ => None,
    });
    let id = one_of(&|filter| match filter {
        Filter::Id(id) => Some(network.id.starts_with(id.as_str())),
        _ => None,
    });
    let has = |name: &str, value: &Option<String>| {
        network.labels.get(name).is_some_and(|actual| value.as_ref().is_none_or(|value| value == actual))
    };
    driver
        && name
        && id
        && filters.iter().all(|filter| match filter {
            Filter::Label { name, value, is_excluded } => has(name, value) != *is_excluded,
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_networks() {
        let network = Network {
            name: "shop-front".into(),
            id: "abc".into(),
            driver: "bridge".into(),
            labels: [("team".to_owned(), "web".to_owned())].into(),
            ..Network::default()
        };
        let accepted = |texts: &[&str]| {
            let filters: Vec<Filter> = texts.iter().map(|text| text.parse().expect(text)).collect();
            accepts(&filters, &network)
        };
        for texts in [
            &[][..],
            &["name=front"],
            &["name=x", "name=shop"],
            &["driver=bridge", "label=team"],
            &["label=team=web", "id=ab"],
            &["label!=other", "label!=team=db"],
        ] {
            assert!(accepted(texts), "{texts:?}");
        }
        for texts in
            [&["name=back"][..], &["driver=macvlan"], &["label=team", "label=other"], &["label!=team"], &["id=b"]]
        {
            assert!(!accepted(texts), "{texts:?}");
        }
        for wrong in ["", "name", "size=1", "driver!=x", "label="] {
            assert!(wrong.parse::<Filter>().is_err(), "{wrong}");
        }
    }
}
