//! The event loop: one iteration handles some events, exits of children and timers, then continues the jobs that are
//! done a piece at a time.

use std::{io, time::Duration};

use crate::{
    clock,
    event::{EpollEvent, POLL_INTERVAL, Timer, Token},
    monitor::Monitor,
    output::SHUTDOWN_TIMEOUT,
    request, upgrade,
};

/// Maximum number of signals read in one iteration. Four signal numbers can be pending; later signals cause another
/// event.
const SIGNALS_MAX: usize = 8;
/// Delay after reading signals failed, which only happens without memory.
const SIGNALS_RETRY: Duration = Duration::from_millis(20);

/// Serves requests until the monitor holds nothing and is requested to exit.
pub(crate) fn run(mut monitor: Monitor) -> Result<(), String> {
    serve(&mut monitor).map_err(|error| format!("wait for events: {error}"))
}

fn serve(monitor: &mut Monitor) -> io::Result<()> {
    monitor.services.epoll.watch(&monitor.sources.listener, Token::Listener)?;
    monitor.services.epoll.watch(&monitor.sources.signals, Token::Signals)?;
    monitor.settle_link();
    while !monitor.should_exit {
        let timeout = if monitor.is_idle() { monitor.services.timers.next() } else { Some(Duration::ZERO) };
        for event in monitor.services.epoll.wait(timeout)? {
            dispatch(monitor, event);
            monitor.settle_link();
        }
        if monitor.reaping {
            monitor.reap();
        }
        while let Some(timer) = monitor.services.timers.due() {
            timer_due(monitor, timer);
            monitor.settle_link();
        }
        monitor.remove_some();
        monitor.thaws.step_next(&mut monitor.services.timers);
        monitor.mounts.close_some();
        monitor.settle_link();
        monitor.services.closers.close_queued(&mut monitor.services.timers);
        if upgrade::try_execute(monitor) {
            // Requests that arrived in the meantime were not read, and edge-triggered epoll does not report them again.
            link_ready(monitor);
        }
        monitor.settle_link();
    }
    finish(monitor)
}

/// Ends the monitor: output that is not in its log stays in its FIFOs.
fn finish(monitor: &mut Monitor) -> io::Result<()> {
    monitor.flush();
    finish_orphans(monitor)?;
    monitor.outputs.kill_writers(&monitor.services);
    monitor.outputs.drop_orphans();
    monitor.services.closers.close_queued(&mut monitor.services.timers);
    Ok(())
}

/// Serves only log writers, until the output of deleted containers is in their logs or [`SHUTDOWN_TIMEOUT`] is over.
fn finish_orphans(monitor: &mut Monitor) -> io::Result<()> {
    let until = clock::monotonic() + SHUTDOWN_TIMEOUT;
    while monitor.outputs.map.has_orphans() {
        let remaining = until.saturating_sub(clock::monotonic());
        if remaining.is_zero() {
            break;
        }
        for event in monitor.services.epoll.wait(Some(remaining))? {
            if matches!(event.token, Token::Signals | Token::Writer(_) | Token::Alarm(_)) {
                dispatch(monitor, event);
            }
        }
        if monitor.reaping {
            monitor.reap();
        }
    }
    Ok(())
}

fn dispatch(monitor: &mut Monitor, event: EpollEvent) {
    match event.token {
        Token::Listener => accept(monitor),
        Token::Signals => read_signals(monitor),
        Token::Link => link_ready(monitor),
        Token::Container(serial) => monitor.advance_container(serial),
        Token::Pidfd(serial) => monitor.check_exit(serial, 0),
        Token::Exec(serial) => monitor.execs.advance(serial, &mut monitor.services),
        Token::NamespaceMaker(serial) => monitor.namespace_makers.advance(serial, &mut monitor.services),
        Token::Hooks(serial) => monitor.advance_hooks(serial),
        Token::Writer(number) => monitor.writer_ready(number),
        Token::Alarm(number) => monitor.alarm_expired(number),
        // Used only by log writers.
        Token::Stream(..) | Token::Tap(..) => {}
    }
}

fn timer_due(monitor: &mut Monitor, timer: Timer) {
    match timer {
        Timer::Drain(serial) => monitor.drain(serial, true),
        Timer::Writers => monitor.outputs.maintain(&mut monitor.services),
        Timer::Reopen(serial) => monitor.outputs.reopened(serial, &mut monitor.services),
        // Used only by log writers.
        Timer::Rest(..) | Timer::Taps(_) | Timer::Close(_) => {}
        Timer::Alarm(number) => monitor.alarm_expired(number),
        Timer::Exit(serial, tries) => monitor.check_exit(serial, tries),
        Timer::Left(serial, tries) => monitor.sweep_leftovers(serial, tries),
        Timer::Remove(serial) => monitor.removal_due(serial),
        Timer::Thaw(serial) => monitor.thaw_due(serial),
        Timer::SetUp(serial) => monitor.set_up_due(serial),
        Timer::Execute(serial) => monitor.execute_due(serial),
        Timer::Answer(serial) => monitor.containers.answer_due(serial, &mut monitor.services),
        Timer::Command(serial) => monitor.exec_due(serial),
        Timer::Maker(serial) => monitor.namespace_makers.due(serial, &mut monitor.services),
        Timer::Runtime(serial) => monitor.runtime_command_due(serial),
        Timer::Watch(token) => poll_unwatched(monitor, token),
        // Handled after every iteration.
        Timer::Upgrade | Timer::Terminals => {}
        Timer::Signals => read_signals(monitor),
    }
}

/// Handles possible events of an object that epoll refused to watch, until it is watched.
fn poll_unwatched(monitor: &mut Monitor, token: Token) {
    dispatch(monitor, EpollEvent { token, broken: false });
    match token {
        // An object with two descriptors has one timer.
        Token::Container(serial) => monitor.check_exit(serial, 0),
        Token::Writer(number) => monitor.alarm_expired(number),
        _ => {}
    }
    if monitor.try_watch(token).is_err() {
        monitor.services.timers.within(POLL_INTERVAL, Timer::Watch(token));
    }
}

/// Accepts a connection of a daemon, and drops the previous one.
fn accept(monitor: &mut Monitor) {
    loop {
        match monitor_api::accept(&monitor.sources.listener) {
            Ok(None) => return,
            Ok(Some(connection)) => {
                monitor.services.link.disconnect(&monitor.services.epoll);
                monitor.settle_link();
                monitor.services.link.connect(connection);
                monitor.services.watch_link();
            }
            Err(error) => {
                eprintln!("pinmon: {error}");
                return;
            }
        }
    }
}

/// Handles requests after the connection became readable or writable.
fn link_ready(monitor: &mut Monitor) {
    monitor.flush();
    // The next program reads the remaining requests of an upgrade.
    while monitor.upgrade.is_none() {
        let Some((request_id, body, attachments)) = monitor.services.link.receive(&monitor.services.epoll) else {
            return;
        };
        request::handle(monitor, request_id, body, attachments);
        monitor.settle_link();
    }
}

/// Reads signals. Children are reaped after the events of this iteration.
fn read_signals(monitor: &mut Monitor) {
    for _ in 0..SIGNALS_MAX {
        match monitor.sources.signals.read() {
            Ok(Some(libc::SIGCHLD)) => monitor.reaping = true,
            Ok(Some(signal)) => handle_termination(monitor, signal),
            Ok(None) => return,
            Err(error) => {
                eprintln!("pinmon: read signals: {error}");
                // No SIGCHLD is reported while an unread one is pending.
                return monitor.services.timers.within(SIGNALS_RETRY, Timer::Signals);
            }
        }
    }
}

/// Handles a termination signal. It ends the monitor only if it holds nothing: output and exit codes of containers
/// depend on it.
fn handle_termination(monitor: &mut Monitor, signal: i32) {
    if monitor.holds_nothing() {
        monitor.should_exit = true;
    } else {
        eprintln!("pinmon: ignore signal {signal}: the monitor holds containers; delete them, then request Shutdown");
    }
}
