use std::ffi::OsString;

use container::{Nascent, Progress};

use crate::{
    arguments::Global,
    command::delete,
    exit_code::ExitCode,
    failure::{Failure, warn},
    flags::switch,
    foreground::{self, Foreground},
    launch::{self, Launched, Request, Starter, launch},
};

/// `run ID`: create and start; in the foreground until its end.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    let more = vec![switch(&["detach", "d"]), switch(&["keep"])];
    let (request, flags) = Request::parse(arguments, more)?;
    let keep = flags.is_on("keep")?;
    if request.detach {
        let launched = launch(global, &request, Starter::Here)?;
        return start(global, launched).map(|_| ExitCode::SUCCESS);
    }
    if !flags.is_on("no-subreaper")? {
        foreground::become_subreaper()?;
    }
    let foreground = Foreground::prepare()?;
    let launched = launch(global, &request, Starter::Here)?;
    if let Some(terminal) = &launched.terminal {
        foreground::fit(terminal);
    }
    let Launched { directory, record, nascent, terminal, .. } = start(global, launched)?;
    let code = foreground.stay(&nascent.pidfd, terminal)?;
    if !keep && let Err(failure) = delete::clean(global, directory, record, Some(nascent.group)) {
        // The container's own end is what the caller waits for.
        warn(global, &failure.message);
    }
    Ok(ExitCode::from(code))
}

/// Lets it go; a container whose program cannot be executed is taken away.
fn start(global: &Global, mut launched: Launched) -> Result<Launched, Failure> {
    if let Err(failure) = execute(&mut launched.nascent) {
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

fn execute(nascent: &mut Nascent) -> Result<(), Failure> {
    nascent.start()?;
    loop {
        launch::wait(nascent)?;
        match nascent.advance()? {
            Progress::Executed => return Ok(()),
            Progress::Pending | Progress::Ready { .. } | Progress::NamespacesMade => {}
        }
    }
}
