//! `hostname` and `domainname`.

use oci::NamespaceType;

use crate::{Error, error::During, namespaces::Namespaces};

/// Maximum length of a name in bytes (`__NEW_UTS_LEN`).
const NAME_MAX: usize = 64;

/// Host name and domain name of the container's UTS namespace.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    host: Option<String>,
    domain: Option<String>,
}

impl HostNames {
    pub(crate) fn parse(spec: &oci::Spec, namespaces: &Namespaces) -> Result<Self, Error> {
        let names = Self {
            host: spec.hostname.clone().filter(|name| !name.is_empty()),
            domain: spec.domainname.clone().filter(|name| !name.is_empty()),
        };
        for (field, name) in [("hostname", &names.host), ("domainname", &names.domain)] {
            let Some(name) = name else { continue };
            if name.len() > NAME_MAX || name.contains('\0') {
                return Err(Error::invalid(format!("{field}: {name:?} is longer than 64 bytes or has a NUL byte")));
            }
            if !namespaces.has(NamespaceType::Uts) {
                return Err(Error::invalid(format!(
                    "{field}: needs a uts namespace; otherwise the host's name would change"
                )));
            }
        }
        Ok(names)
    }

    /// Sets the names. Runs in the child, in its UTS namespace.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        if let Some(name) = &self.host {
            rustix::system::sethostname(name.as_bytes()).during(|| format!("set hostname {name:?}"))?;
        }
        if let Some(name) = &self.domain {
            rustix::system::setdomainname(name.as_bytes()).during(|| format!("set domainname {name:?}"))?;
        }
        Ok(())
    }
}
