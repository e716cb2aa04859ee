use std::ffi::OsString;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    launch::{self, Request, Starter, launch},
};

/// `create ID`: a container whose program waits for `start`.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    let (request, _) = Request::parse(arguments, Vec::new())?;
    let mut launched = launch(global, &request, Starter::Another)?;
    if let Err(error) = launched.nascent.leave() {
        launched.abandon(global);
        return Err(error.into());
    }
    launched.directory.unlock();
    Ok(ExitCode::SUCCESS)
}
