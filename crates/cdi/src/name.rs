use std::fmt;

use crate::Error;

/// The longest vendor in bytes: that of a DNS subdomain.
const VENDOR_MAX: usize = 253;
/// The longest class in bytes.
const CLASS_MAX: usize = 63;
/// The longest device name in bytes; names may contain, for example, a path with a PCI address or a UUID.
const DEVICE_MAX: usize = 253;

/// A fully-qualified device name, `vendor.com/class=name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    kind: String,
    device: String,
}

impl Name {
    /// Parses a fully-qualified name.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn parse(name: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::Name { name: name.chars().take(2 * VENDOR_MAX).collect(), reason };
        let (kind, device) = name.split_once('=').ok_or_else(|| wrong("it contains no \"=\""))?;
        check_kind(kind).map_err(wrong)?;
        check_device(device).map_err(wrong)?;
        Ok(Self { kind: kind.to_owned(), device: device.to_owned() })
    }

    /// Returns a name from parts that were checked.
    pub(crate) fn from_parts(kind: &str, device: &str) -> Self {
        Self { kind: kind.to_owned(), device: device.to_owned() }
    }

    /// Returns the kind, `vendor.com/class`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the name of the device within its kind.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

/// Checks a kind, `vendor.com/class`: both parts must begin with a letter.
pub(crate) fn check_kind(kind: &str) -> Result<(), &'static str> {
    let (vendor, class) = kind.split_once('/').ok_or("the kind contains no \"/\" between vendor and class")?;
    let begins_with_letter = |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic());
    if !(begins_with_letter(vendor) && well_formed(vendor, VENDOR_MAX, "_-.")) {
        return Err("the vendor must consist of letters, digits, \"_\", \"-\" and \".\", and begin with a letter");
    }
    if !(begins_with_letter(class) && well_formed(class, CLASS_MAX, "_-.")) {
        return Err("the class must consist of letters, digits, \"_\", \"-\" and \".\", and begin with a letter");
    }
    Ok(())
}

pub(crate) fn check_device(device: &str) -> Result<(), &'static str> {
    match well_formed(device, DEVICE_MAX, "_-.:") {
        true => Ok(()),
        false => Err("the device name must consist of letters, digits, \"_\", \"-\", \".\" and \":\""),
    }
}

/// Reports whether a part has letters and digits at both ends, and only them and `others` in between.
fn well_formed(part: &str, max_length: usize, others: &str) -> bool {
    let ends = part.bytes().next().into_iter().chain(part.bytes().last());
    !part.is_empty()
        && part.len() <= max_length
        && ends.into_iter().all(|byte| byte.is_ascii_alphanumeric())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_three_parts() {
        let name = Name::parse("vendor.com/gpu-x=0000:3b:00.0").expect("parse the name");
        assert_eq!((name.kind(), name.device()), ("vendor.com/gpu-x", "0000:3b:00.0"));
        assert_eq!(name.to_string(), "vendor.com/gpu-x=0000:3b:00.0");
        for good in ["a/b=c", "v.io/c=0", "nvidia.com/gpu=all", "k8s.gpu.nvidia.com/claim=a1_b-c"] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
        let long = format!("v/c={}", "x".repeat(254));
        for bad in
            ["", "gpu", "/dev/null", "v/c", "v/c=", "=x", "v=x", "/c=x", "v/=x", "1v/c=x", "v/c=-x", "v/c=x y", &long]
        {
            assert!(matches!(Name::parse(bad), Err(Error::Name { .. })), "{bad:?}");
        }
    }
}
