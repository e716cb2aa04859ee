//! What a daemon that was killed and cannot end keeps locked.

use std::{fs, io::ErrorKind, path::Path};

use crate::{Error, error::failed, state};

/// Makes the directories of a daemon free for [`crate::Engine::open`] that never runs again and does not end, because a thread
/// of it is held inside the kernel.
///
/// # Errors
/// Of the disks. What was not made free stays locked.
pub fn take_over(state_dir: &Path, data_dir: &Path) -> Result<(), Error> {
    let lock = state_dir.join(state::LOCK);
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed(format_args!("remove {}", lock.display()))(error));
        }
        _ => {}
    }
    network::take_over(state_dir).map_err(failed("take over the network's state"))?;
    Ok(image::take_over(data_dir)?)
}
