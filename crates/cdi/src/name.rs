use std::fmt;

use crate::Error;

/// Longest vendor: a DNS subdomain's bound, bytes.
const VENDOR_MAX: usize = 253;
/// Longest class and device name, bytes.
const PART_MAX: usize = 63;
/// Devices may be named by what is long: a PCI address within a path, a UUID with a prefix.
const DEVICE_MAX: usize = 253;

/// A full name, `vendor.com/class=name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    kind: String,
    device: String,
}

impl Name {
    /// Reads a full name.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn parse(name: &str) -> Result<Self, Error> {
        let wrong = |why| Error::Name { name: name.chars().take(2 * VENDOR_MAX).collect(), why };
        let (kind, device) = name.split_once('=').ok_or_else(|| wrong("there is no \"=\""))?;
        check_kind(kind).map_err(wrong)?;
        check_device(device).map_err(wrong)?;
        Ok(Self { kind: kind.to_owned(), device: device.to_owned() })
    }

    /// Of parts that were checked.
    pub(crate) fn of(kind: &str, device: &str) -> Self {
        Self { kind: kind.to_owned(), device: device.to_owned() }
    }

    /// `vendor.com/class`
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What it is called among those of its kind.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

/// `vendor.com/class`: each begins with a letter.
pub(crate) fn check_kind(kind: &str) -> Result<(), &'static str> {
    let (vendor, class) = kind.split_once('/').ok_or("the kind has no \"/\" between vendor and class")?;
    let led_by_letter = |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic());
    if !(led_by_letter(vendor) && well_formed(vendor, VENDOR_MAX, "_-.")) {
        return Err("the vendor is not of letters, digits, \"_\", \"-\" and \".\", led by a letter");
    }
    if !(led_by_letter(class) && well_formed(class, PART_MAX, "_-.")) {
        return Err("the class is not of letters, digits, \"_\", \"-\" and \".\", led by a letter");
    }
    Ok(())
}

pub(crate) fn check_device(device: &str) -> Result<(), &'static str> {
    match well_formed(device, DEVICE_MAX, "_-.:") {
        true => Ok(()),
        false => Err("the device's name is not of letters, digits, \"_\", \"-\", \".\" and \":\""),
    }
}

/// Letters and digits at both ends; these others between them.
fn well_formed(part: &str, most: usize, between: &str) -> bool {
    let ends = part.bytes().next().into_iter().chain(part.bytes().last());
    !part.is_empty()
        && part.len() <= most
        && ends.into_iter().all(|byte| byte.is_ascii_alphanumeric())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || between.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_three_parts() {
        let name = Name::parse("vendor.com/gpu-x=0000:3b:00.0").expect("valid");
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
