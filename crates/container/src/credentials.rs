//! `process.user`.

use std::collections::BTreeSet;

use rustix::{
    fs::{Gid, Mode, Uid},
    process::umask,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{Error, error::During};

/// The kernel's `NGROUPS_MAX`.
const GROUPS_MAX: usize = 65536;
/// What a process gets whose spec says nothing.
const DEFAULT_UMASK: u32 = 0o022;

/// Ids and mask of the process.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    umask: Mode,
}

impl Credentials {
    pub(crate) fn parse(user: &oci::User) -> Result<Self, Error> {
        let invalid = |field: &str, id: u32| Error::invalid(format!("process.user.{field}: {id} is no id"));
        for (field, id) in [("uid", user.uid), ("gid", user.gid)] {
            if id == u32::MAX {
                return Err(invalid(field, id));
            }
        }
        if let Some(id) = user.additional_gids.iter().find(|id| **id == u32::MAX) {
            return Err(invalid("additionalGids", *id));
        }
        if user.additional_gids.len() > GROUPS_MAX {
            return Err(Error::invalid("process.user.additionalGids: more than 65536"));
        }
        let mask = user.umask.unwrap_or(DEFAULT_UMASK);
        if mask > 0o777 {
            return Err(Error::invalid(format!("process.user.umask: {mask:#o} is more than 0o777")));
        }
        // Engines name a group twice, once from the image and once from their user; the kernel sorts, but keeps both.
        let groups: BTreeSet<u32> = user.additional_gids.iter().copied().collect();
        Ok(Self {
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            umask: Mode::from_raw_mode(mask),
        })
    }

    /// In the child, as root.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        set_thread_groups(&self.groups).during(|| format!("set the supplementary groups {:?}", self.groups))?;
        set_thread_res_gid(self.gid, self.gid, self.gid).during(|| format!("become group {}", self.gid.as_raw()))?;
        set_thread_res_uid(self.uid, self.uid, self.uid).during(|| format!("become user {}", self.uid.as_raw()))?;
        umask(self.umask);
        Ok(())
    }
}
