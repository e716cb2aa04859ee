use std::{ffi::OsString, process::ExitCode};

use container::{Nascent, Progress};

use crate::{
    arguments::Global,
    command::delete,
    failure::{Failure, warn},
    flags::switch,
    foreground::{self, Foreground},
    launch::{self, Launched, Request, Starter, launch},
    own_program,
};

/// `run ID`: create and start; in the foreground until its end.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    own_program::protect()?;
    let more = vec![switch(&["detach", "d"]), switch(&["keep"])];
    let (request, flags) = Request::parse(arguments, more)?;
    let keep = flags.is_on("keep")?;
    if request.detach {
        let launched = launch(global, &request, Starter::Here)?;
        return start(launched).map(|_| ExitCode::SUCCESS);
    }
    if !flags.is_on("no-subreaper")? {
        foreground::become_subreaper()?;
    }
    let foreground = Foreground::prepare()?;
    let launched = launch(global, &request, Starter::Here)?;
    let Launched { folder, record, nascent, terminal } = start(launched)?;
    let code = foreground.stay(&nascent.pidfd, terminal)?;
    if !keep && let Err(failure) = delete::clean(global, folder, record, Some(nascent.group)) {
        // The container's own end is what the caller waits for.
        warn(global, &failure.message);
    }
    Ok(ExitCode::from(code))
}

/// Lets it go; a container whose program cannot be executed is taken away.
fn start(launched: Launched) -> Result<Launched, Failure> {
    let Launched { folder, record, mut nascent, terminal } = launched;
    match execute(&mut nascent) {
        Ok(()) => {
            folder.forget_start();
            folder.unlock();
            Ok(Launched { folder, record, nascent, terminal })
        }
        Err(failure) => {
            launch::abandon(nascent);
            // What failed first is what to tell.
            let _ = folder.remove();
            Err(failure)
        }
    }
}

fn execute(nascent: &mut Nascent) -> Result<(), Failure> {
    nascent.start()?;
    loop {
        match nascent.advance()? {
            Progress::Executed => return Ok(()),
            Progress::Pending => launch::wait(nascent)?,
            Progress::Ready { .. } | Progress::NamespacesMade => {}
        }
    }
}
