//! The user and groups of a process: names and numbers are looked up in the image's own `/etc/passwd` and `/etc/group`.
//!
//! The files come from the image and are therefore untrusted: they are opened within the root, must be regular files,
//! and are read up to a size limit.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
};

use crate::{Error, GroupsPolicy, UserChoice, error::failed};

/// Size limit of a file, bytes.
const SIZE_MAX: usize = 4 << 20;

/// Contents of `/etc/passwd` and `/etc/group` of an image.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

/// A line of `/etc/passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl Accounts {
    /// Reads both files from a root file system; a missing file is empty. Blocks.
    pub(crate) fn read(root: impl AsFd) -> Result<Self, Error> {
        Ok(Self { passwd: read(&root, "etc/passwd")?, group: read(&root, "etc/group")? })
    }

    fn accounts(&self) -> impl Iterator<Item = Account<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            Some(Account { name, uid: uid.parse().ok()?, gid: gid.parse().ok()? })
        })
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, gid, members) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            Some(Group { name, gid: gid.parse().ok()?, members })
        })
    }

    /// Resolves a user and its groups. `image` is the image's `USER`.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name and for an id out of range.
    pub(crate) fn resolve(
        &self,
        choice: &UserChoice,
        image: &str,
        supplemental: &[i64],
        policy: GroupsPolicy,
    ) -> Result<oci::User, Error> {
        let (uid, gid, name) = match choice {
            UserChoice::Image => self.by_text(image)?,
            UserChoice::Name(text) => self.by_text(text)?,
            UserChoice::Uid { uid, gid } => {
                let uid = id(*uid, "user")?;
                let account = self.accounts().find(|account| account.uid == uid);
                let primary = account.as_ref().map_or(0, |account| account.gid);
                let gid = gid.map_or(Ok(primary), |gid| id(gid, "group"))?;
                (uid, gid, account.map(|account| account.name))
            }
        };
        let mut groups = vec![gid];
        for group in supplemental {
            groups.push(id(*group, "group")?);
        }
        if let (GroupsPolicy::Merge, Some(name)) = (policy, name) {
            let member = |group: &Group<'_>| group.members.split(',').any(|member| member.trim() == name);
            groups.extend(self.groups().filter(member).map(|group| group.gid));
        }
        let mut seen = std::collections::HashSet::new();
        groups.retain(|group| seen.insert(*group));
        Ok(oci::User { uid, gid, umask: None, additional_gids: groups })
    }

    /// Resolves `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    fn by_text<'a>(&'a self, text: &str) -> Result<(u32, u32, Option<&'a str>), Error> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let user = if user.is_empty() { "0" } else { user };
        let account = self.accounts().find(|account| account.name == user);
        let number = user.parse::<u32>().ok();
        let (uid, primary, name) = match (account, number) {
            (Some(account), _) => (account.uid, account.gid, Some(account.name)),
            (None, Some(uid)) => match self.accounts().find(|account| account.uid == uid) {
                Some(account) => (uid, account.gid, Some(account.name)),
                None => (uid, 0, None),
            },
            (None, None) => {
                return Err(Error::invalid(format!("user {user:?} is not in the image's /etc/passwd")));
            }
        };
        let gid = match group {
            None | Some("") => primary,
            Some(group) => self.group_by_text(group)?,
        };
        Ok((uid, gid, name))
    }

    fn group_by_text(&self, text: &str) -> Result<u32, Error> {
        let named = self.groups().find(|group| group.name == text).map(|group| group.gid);
        named
            .or_else(|| text.parse().ok())
            .ok_or_else(|| Error::invalid(format!("group {text:?} is not in the image's /etc/group")))
    }
}

fn id(number: i64, kind: &str) -> Result<u32, Error> {
    // To the kernel the largest value means "do not change" (setresuid(2)).
    match u32::try_from(number) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(Error::invalid(format!("{kind} id {number} is not between 0 and {}", u32::MAX - 1))),
    }
}

fn read(root: impl AsFd, path: &str) -> Result<String, Error> {
    let operation = format!("read /{path} of the image");
    let file = match open(root, path) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(String::new()),
        Err(errno) => return Err(failed(operation)(errno)),
    };
    let stat = fstat(&file).map_err(failed(&operation))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::invalid(format!("{operation}: it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let mut buffer = [0u8; 8192];
    loop {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(operation)(errno)),
        }
        if bytes.len() > SIZE_MAX {
            return Err(Error::invalid(format!("{operation}: longer than {SIZE_MAX} bytes")));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn open(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    loop {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
