use std::{ffi::OsString, process::ExitCode};

use crate::{
    arguments::Global,
    failure::Failure,
    launch::{Launched, Request, Starter, launch},
    own_program,
};

/// `create ID`: a container whose program waits for `start`.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    own_program::protect()?;
    let (request, _) = Request::parse(arguments, Vec::new())?;
    let Launched { folder, nascent, .. } = launch(global, &request, Starter::Another)?;
    nascent.leave()?;
    folder.unlock();
    Ok(ExitCode::SUCCESS)
}
