use std::ffi::OsString;

use crate::{
    arguments::Global,
    command::state::status_name,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    state::Directory,
};

/// `resume ID`: thaws a paused container.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let id = flags.id()?;
    let directory = Directory::open(&global.root, id)?;
    let record = directory.load()?;
    match record.status(&directory)? {
        oci::Status::Paused => {
            record.group()?.thaw()?;
            Ok(ExitCode::SUCCESS)
        }
        status => Err(Failure::new(format!("container {id} is not paused: {}", status_name(status)))),
    }
}
