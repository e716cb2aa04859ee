use std::ffi::OsString;

use crate::{
    arguments::Global,
    command::state::word,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    state::Directory,
};

/// `pause ID`: freezes every process of the container; returns when they are.
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
        status => Err(Failure::new(format!("container {id} is not running or created: {}", word(status)))),
    }
}
