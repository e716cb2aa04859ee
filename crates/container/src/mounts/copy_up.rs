//! `tmpcopyup`: copies the image's files at the destination into the new tmpfs.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown, fstat, mkdirat, mknodat, openat,
        readlinkat, sendfile, symlinkat,
    },
    io::Errno,
};

/// Maximum depth of a tree that is copied.
const DEPTH_MAX: usize = 64;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OPEN_FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Copies the contents of directory `from` into directory `to`, whose mode is not changed.
pub(crate) fn copy_tree(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let from = openat(from, c".", OPEN_DIRECTORY, Mode::empty())?;
    copy_directory(&from, to, DEPTH_MAX)
}

fn copy_directory(from: &OwnedFd, to: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
    if depth == 0 {
        return Err(Errno::LOOP);
    }
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let fd = openat(from, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let from = openat(from, name, OPEN_DIRECTORY, Mode::empty())?;
                mkdirat(to, name, Mode::RWXU)?;
                let to = openat(to, name, OPEN_DIRECTORY, Mode::empty())?;
                copy_directory(&from, to.as_fd(), depth - 1)?;
                set_owner_and_mode(&to, &stat, mode)?;
            }
            FileType::RegularFile => {
                let from = openat(from, name, OPEN_FILE, Mode::empty())?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let to = openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
                copy_data(&from, &to)?;
                set_owner_and_mode(&to, &stat, mode)?;
            }
            FileType::Symlink => {
                let target = readlinkat(&fd, c"", Vec::new())?;
                symlinkat(target.as_c_str(), to, name)?;
                set_owner_at(to, name, &stat)?;
            }
            kind => {
                mknodat(to, name, kind, mode, stat.st_rdev)?;
                set_owner_at(to, name, &stat)?;
            }
        }
    }
    Ok(())
}

fn set_owner_and_mode(file: &OwnedFd, stat: &Stat, mode: Mode) -> Result<(), Errno> {
    fchown(file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fchmod(file, mode)
}

fn set_owner_at(directory: BorrowedFd<'_>, name: &std::ffi::CStr, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn copy_data(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    while sendfile(to, from, None, 1 << 30)? > 0 {}
    Ok(())
}
