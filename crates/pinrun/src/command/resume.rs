use std::ffi::OsString;

use crate::{
    arguments::Global,
    command::state::word,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    state::Folder,
};

/// `resume ID`: thaws a paused container.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let id = flags.id()?;
    let folder = Folder::open(&global.root, id)?;
    let record = folder.load()?;
    match record.status(&folder)? {
        oci::Status::Paused => {
            record.group()?.thaw()?;
            Ok(ExitCode::SUCCESS)
        }
        status => Err(Failure::new(format!("container {id} is not paused: {}", word(status)))),
    }
}
