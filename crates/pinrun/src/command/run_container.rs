use std::ffi::OsString;

use container::{ContainerSetup, Progress};

use crate::{
    arguments::Global,
    command::delete,
    exit_code::ExitCode,
    failure::Failure,
    flags::switch,
    foreground::{self, Foreground},
    launch::{self, Launched, Request, Starter, launch},
    log::warn,
};

/// `run ID`: creates and starts a container, and without `--detach` waits for it to exit.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    let more = vec![switch(&["detach", "d"]), switch(&["keep"])];
    let (request, flags) = Request::parse(arguments, more)?;
    let keep = flags.is_on("keep")?;
    if request.detach {
        let launched = launch(global, &request, Starter::ThisCall)?;
        return start(global, launched).map(|_| ExitCode::SUCCESS);
    }
    if !flags.is_on("no-subreaper")? {
        foreground::become_subreaper()?;
    }
    let foreground = Foreground::prepare()?;
    let launched = launch(global, &request, Starter::ThisCall)?;
    if let Some(terminal) = &launched.terminal {
        foreground::copy_window_size(terminal);
    }
    let Launched { directory, record, setup, terminal, .. } = start(global, launched)?;
    let code = foreground.wait(&setup.pidfd, terminal)?;
    if !keep && let Err(failure) = delete::clean(global, directory, record, Some(setup.group)) {
        // The caller needs the container's exit code, even if its removal failed.
        warn(global, &failure.message);
    }
    Ok(ExitCode::from(code))
}

/// Starts the container. A container whose program cannot be executed is removed.
fn start(global: &Global, mut launched: Launched) -> Result<Launched, Failure> {
    if let Err(failure) = execute(&mut launched.setup) {
        launched.abandon(global);
        return Err(failure);
    }
    launched.directory.unlock();
    let running = launched.record.state(oci::Status::Running);
    match launched.hooks.poststart(&running) {
        Ok(()) => Ok(launched),
        Err(error) => {
            launched.abandon(global);
            Err(error.into())
        }
    }
}

fn execute(setup: &mut ContainerSetup) -> Result<(), Failure> {
    setup.start()?;
    loop {
        launch::wait(setup)?;
        match setup.advance()? {
            Progress::Executed => return Ok(()),
            Progress::Pending | Progress::Ready { .. } | Progress::NamespacesCreated => {}
        }
    }
}
