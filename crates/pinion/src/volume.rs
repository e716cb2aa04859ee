//! Parser for the option `-v` of `pinion run`.

use std::{path::PathBuf, str::FromStr};

use cri_proto::v1;

/// A bind mount, `HOST:CONTAINER[:OPTIONS]`. Options: `ro`, `rw`, `rro` (recursively read-only), `z`, `rslave`,
/// `rshared`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    host: PathBuf,
    container: String,
    readonly: bool,
    recursive: bool,
    relabel: bool,
    propagation: v1::MountPropagation,
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (Some(host), Some(container), options, None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("{text:?} is not HOST:CONTAINER[:OPTIONS]"));
        };
        if host.is_empty() || !container.starts_with('/') {
            return Err(format!("{text:?}: the container's path must be absolute"));
        }
        let mut bind = Self {
            host: PathBuf::from(host),
            container: container.to_owned(),
            readonly: false,
            recursive: false,
            relabel: false,
            propagation: v1::MountPropagation::PropagationPrivate,
        };
        options.into_iter().flat_map(|options| options.split(',')).try_for_each(|option| bind.option(text, option))?;
        Ok(bind)
    }
}

impl Bind {
    fn option(&mut self, text: &str, option: &str) -> Result<(), String> {
        match option {
            "rw" | "private" | "rprivate" => {}
            "ro" => self.readonly = true,
            "rro" => (self.readonly, self.recursive) = (true, true),
            "z" | "Z" => self.relabel = true,
            "slave" | "rslave" => self.propagation = v1::MountPropagation::PropagationHostToContainer,
            "shared" | "rshared" => self.propagation = v1::MountPropagation::PropagationBidirectional,
            other => return Err(format!("{text:?}: unknown option {other:?} (ro, rro, rw, z, rslave, rshared)")),
        }
        Ok(())
    }

    /// Returns the CRI message. A relative host path is resolved here, because the daemon has another working
    /// directory.
    pub(crate) fn mount(&self) -> Result<v1::Mount, String> {
        let host = std::path::absolute(&self.host)
            .map_err(|error| format!("resolve bind source {}: {error}", self.host.display()))?;
        // The daemon refuses paths with "..", which are ambiguous if a component is a symbolic link.
        #[expect(clippy::disallowed_methods, reason = "a path of the user's, which the daemon opens and checks")]
        let host =
            host.canonicalize().map_err(|error| format!("resolve bind source {}: {error}", self.host.display()))?;
        Ok(v1::Mount {
            container_path: self.container.clone(),
            host_path: host.display().to_string(),
            readonly: self.readonly,
            recursive_read_only: self.recursive,
            selinux_relabel: self.relabel,
            propagation: self.propagation.into(),
            ..Default::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let mount = "/:/data:ro,rslave".parse::<Bind>().expect("valid").mount().expect("/ exists");
        assert!(mount.readonly && !mount.recursive_read_only);
        assert_eq!((mount.host_path.as_str(), mount.container_path.as_str()), ("/", "/data"));
        assert_eq!(mount.propagation(), v1::MountPropagation::PropagationHostToContainer);
    }

    #[test]
    fn invalid_volumes_are_refused() {
        for invalid in ["", "/a", "/a:b", ":/b", "/a:/b:what", "/a:/b:ro:x"] {
            assert!(invalid.parse::<Bind>().is_err(), "{invalid}");
        }
        let missing = "/no/such:/b".parse::<Bind>().expect("valid").mount().expect_err("does not exist");
        assert!(missing.contains("/no/such"), "{missing}");
    }
}
