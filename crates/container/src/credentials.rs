//! `process.user`: ids, groups and umask of the process.

use std::collections::BTreeSet;

use rustix::{
    fs::{Gid, Mode, Uid},
    io::Errno,
    process::umask,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{Error, error::During, id_mappings::IdMappings};

/// Maximum number of supplementary groups (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65536;
/// The umask of a process if the spec does not set one.
const DEFAULT_UMASK: u32 = 0o022;

/// Ids, groups and umask of the process.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// Whether to keep the caller's groups in place of `groups`.
    keep_groups: bool,
    umask: Mode,
}

impl Credentials {
    pub(crate) fn parse(user: &oci::User) -> Result<Self, Error> {
        let invalid = |field: &str, id: u32| Error::invalid(format!("process.user.{field}: {id} is not a valid id"));
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
        // Engines list a group twice, once from the image and once from their user. The kernel sorts the groups, but
        // keeps duplicates.
        let groups: BTreeSet<u32> = user.additional_gids.iter().copied().collect();
        Ok(Self {
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            keep_groups: false,
            umask: Mode::from_raw_mode(mask),
        })
    }

    /// Sets whether the caller's supplementary groups are kept.
    pub(crate) fn with_callers_groups(self, keep_groups: bool) -> Self {
        Self { keep_groups, ..self }
    }

    /// Checks that all ids are mapped.
    pub(crate) fn check_mapped(&self, mappings: &IdMappings) -> Result<(), Error> {
        let unmapped = |field: &str, id: u32, map: &str| {
            Error::invalid(format!("process.user.{field}: {id} is not mapped by linux.{map}"))
        };
        if mappings.outer_uid(self.uid).is_none() {
            return Err(unmapped("uid", self.uid.as_raw(), "uidMappings"));
        }
        if mappings.outer_gid(self.gid).is_none() {
            return Err(unmapped("gid", self.gid.as_raw(), "gidMappings"));
        }
        match self.groups.iter().filter(|_| !self.keep_groups).find(|gid| mappings.outer_gid(**gid).is_none()) {
            Some(gid) => Err(unmapped("additionalGids", gid.as_raw(), "gidMappings")),
            None => Ok(()),
        }
    }

    /// Sets groups, ids and umask. Runs in the child, as root.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        let result = if self.keep_groups { Ok(()) } else { set_thread_groups(&self.groups) };
        match result {
            // In a user namespace made by an unprivileged user, groups cannot be dropped.
            Err(Errno::PERM) if self.groups.is_empty() => {}
            Err(Errno::PERM) => {
                let reason = "not permitted where an unprivileged user maps only its own group";
                return Err(Error::system(
                    format!("set the supplementary groups {:?}: {reason}", self.groups),
                    Errno::PERM,
                ));
            }
            result => result.during(|| format!("set the supplementary groups {:?}", self.groups))?,
        }
        let (uid, gid) = (self.uid, self.gid);
        set_thread_res_gid(gid, gid, gid).map_err(|errno| id_error("group", gid.as_raw(), errno))?;
        set_thread_res_uid(uid, uid, uid).map_err(|errno| id_error("user", uid.as_raw(), errno))?;
        umask(self.umask);
        Ok(())
    }
}

fn id_error(kind: &str, id: u32, errno: Errno) -> Error {
    let hint = if errno == Errno::INVAL { ": it is not mapped in the container's user namespace" } else { "" };
    Error::system(format!("become {kind} {id}{hint}"), errno)
}
