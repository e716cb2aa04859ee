use std::ffi::OsString;

use crate::{
    arguments::Global,
    command::state::status_name,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    state::Directory,
};

/// `pause ID`: freezes all processes of the container, and returns when they are frozen.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let id = flags.id()?;
    let directory = Directory::open(&global.root, id)?;
    let record = directory.load()?;
    match record.status(&directory)? {
        oci::Status::Running | oci::Status::Created => {
            record.group()?.freeze()?;
            Ok(ExitCode::SUCCESS)
        }
        status => Err(Failure::new(format!("container {id} is not running or created: {}", status_name(status)))),
    }
}
