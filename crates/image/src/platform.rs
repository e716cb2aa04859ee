//! Platforms of images, and the choice of one for this machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A platform of an index (OCI image spec, image-index).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Architecture, as named by Go: `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// Operating system: `linux`.
    #[serde(default)]
    pub os: String,
    /// Variant of the architecture: `v8`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(f, "/{}", self.variant)?;
        }
        Ok(())
    }
}

impl Platform {
    /// Returns the platform of this machine.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", x86_variant()),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "x86" => ("386", ""),
            "powerpc64" => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self { architecture: architecture.into(), os: "linux".into(), variant: variant.into() }
    }

    /// Whether this is the platform of a WebAssembly runtime: `wasi/wasm`, `wasip1/wasm`, `wasip2/wasm`.
    pub(crate) fn is_wasm(&self) -> bool {
        self.architecture == "wasm" && matches!(self.os.as_str(), "wasi" | "wasip1" | "wasip2" | "")
    }

    /// Ranks how well an image of `other` runs on this host: higher is better, `None` means that it does not run.
    fn fitness(&self, other: &Self) -> Option<u32> {
        let os_fits = other.os.is_empty() || other.os == self.os;
        let architecture_fits = other.architecture.is_empty() || other.architecture == self.architecture;
        if !os_fits || !architecture_fits {
            return None;
        }
        let level = |variant: &str, default| variant.strip_prefix('v').and_then(|v| v.parse().ok()).unwrap_or(default);
        // Without a variant, the default of the architecture is meant (containerd's platform normalization).
        let default_level = match self.architecture.as_str() {
            "arm64" => 8,
            "arm" => 7,
            _ => 1,
        };
        let (host, image): (u32, u32) = (level(&self.variant, default_level), level(&other.variant, default_level));
        (image <= host).then_some(image)
    }

    /// Whether an image of this platform runs on this host. Empty fields match any host, and modules any host with a
    /// handler for them.
    pub(crate) fn runs(&self, other: &Self) -> bool {
        self.fitness(other).is_some() || other.is_wasm()
    }
}

#[cfg(target_arch = "x86_64")]
fn x86_variant() -> &'static str {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe");
    match (v3, is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("popcnt")) {
        (true, _) => "v3",
        (false, true) => "v2",
        (false, false) => "",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn x86_variant() -> &'static str {
    ""
}

/// Returns the best of an index's entries; a module only if none is for this machine. The error lists the platforms of all entries.
pub(crate) fn choose<'a, T>(host: &Platform, entries: &'a [(Platform, T)]) -> Result<&'a T, Error> {
    let fitting = entries.iter().enumerate().filter_map(|(at, (platform, entry))| {
        // Of equal entries the first is chosen, as by other engines.
        host.fitness(platform).map(|fitness| ((fitness, usize::MAX - at), entry))
    });
    let module = || entries.iter().find(|(platform, _)| platform.is_wasm()).map(|(_, entry)| entry);
    let best = fitting.max_by_key(|(rank, _)| *rank).map(|(_, entry)| entry);
    best.or_else(module).ok_or_else(|| {
        let available: Vec<_> = entries.iter().map(|(platform, _)| platform.to_string()).collect();
        no_match(host, &available.join(", "))
    })
}

/// Returns the error for an image that has no matching platform.
pub(crate) fn no_match(host: &Platform, available: &str) -> Error {
    Error::invalid(format!("no image for this machine ({}/{}): it has {available} only", host.os, host.architecture))
}

#[cfg(test)]
mod tests {
    use super::{Platform, choose};

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform { os: next(), architecture: next(), variant: next() }
    }

    fn chosen(host: &str, available: &[&str]) -> Result<String, String> {
        let entries: Vec<_> = available.iter().map(|text| (platform(text), (*text).to_owned())).collect();
        choose(&platform(host), &entries).cloned().map_err(|error| error.message)
    }

    #[test]
    fn the_best_matching_variant_is_chosen() {
        assert_eq!(chosen("linux/arm64/v8", &["linux/amd64", "linux/arm64"]).unwrap(), "linux/arm64");
        assert_eq!(
            chosen("linux/amd64/v2", &["linux/amd64", "linux/amd64/v2", "linux/amd64/v3"]).unwrap(),
            "linux/amd64/v2"
        );
        assert_eq!(chosen("linux/arm/v7", &["linux/arm/v6", "linux/arm/v5"]).unwrap(), "linux/arm/v6");
        assert_eq!(chosen("linux/amd64", &["unknown/unknown", "linux/amd64"]).unwrap(), "linux/amd64");
    }

    #[test]
    fn a_module_is_chosen_if_nothing_is_for_this_machine() {
        assert_eq!(chosen("linux/amd64", &["wasip1/wasm", "linux/amd64"]).unwrap(), "linux/amd64");
        assert_eq!(chosen("linux/amd64", &["linux/arm64", "wasi/wasm", "wasip2/wasm"]).unwrap(), "wasi/wasm");
        assert!(chosen("linux/amd64", &["js/wasm"]).is_err());
    }

    #[test]
    fn an_error_lists_the_platforms_of_the_image() {
        let error = chosen("linux/amd64", &["linux/arm64/v8", "windows/amd64"]).unwrap_err();
        assert!(error.contains("linux/arm64/v8, windows/amd64"), "{error}");
    }
}
