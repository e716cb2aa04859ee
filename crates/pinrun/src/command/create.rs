use std::ffi::OsString;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    launch::{self, Request, Starter, launch},
};

/// `create ID`: creates a container whose init waits for `start`.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    let (request, _) = Request::parse(arguments, Vec::new())?;
    let mut launched = launch(global, &request, Starter::LaterCall)?;
    if let Err(error) = launched.setup.detach() {
        launched.abandon(global);
        return Err(error.into());
    }
    launched.directory.unlock();
    Ok(ExitCode::SUCCESS)
}
