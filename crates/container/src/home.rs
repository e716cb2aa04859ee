//! `HOME`, if the spec's environment does not set it: read from the container's `/etc/passwd`, which is untrusted.

use std::ffi::CString;

use rustix::{
    fd::BorrowedFd,
    fs::{FileType, Mode, OFlags, ResolveFlags, Uid, fstat, openat2},
    io::Errno,
};

/// Maximum number of bytes of the file that are read.
const PASSWD_MAX: usize = 1 << 20;

/// Returns `HOME=…` for this user; `HOME=/` for a user without an entry.
pub(crate) fn variable(root: BorrowedFd<'_>, uid: Uid) -> CString {
    let home = read_passwd(root).ok().and_then(|text| find(&text, uid));
    let home = home.unwrap_or_else(|| b"/".to_vec());
    CString::new([b"HOME=", home.as_slice()].concat()).unwrap_or_else(|_| c"HOME=/".into())
}

fn read_passwd(root: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(root, c"/etc/passwd", flags, Mode::empty(), resolve)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let size = usize::try_from(stat.st_size).unwrap_or(PASSWD_MAX).min(PASSWD_MAX);
    let mut text = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match rustix::io::read(&file, &mut text[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    text.truncate(filled);
    Ok(text)
}

/// Finds the home directory of a user in lines of the form `name:password:uid:gid:comment:home:shell`.
fn find(text: &[u8], uid: Uid) -> Option<Vec<u8>> {
    let uid = uid.as_raw().to_string();
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let id = fields.nth(2)?;
        let home = fields.nth(2)?;
        (id == uid.as_bytes() && home.starts_with(b"/") && !home.contains(&0)).then(|| home.to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_read_from_the_users_entry() {
        let text = b"root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:33::/var/www:/bin/false\nodd:x:7:7::relative:\n";
        assert_eq!(find(text, Uid::from_raw(0)).as_deref(), Some(&b"/root"[..]));
        assert_eq!(find(text, Uid::from_raw(33)).as_deref(), Some(&b"/var/www"[..]));
        assert_eq!(find(text, Uid::from_raw(7)), None);
        assert_eq!(find(text, Uid::from_raw(1)), None);
    }
}
