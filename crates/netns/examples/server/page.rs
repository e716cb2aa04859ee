//! The page that Prometheus reads: text format 0.0.4, made in pieces, so that thousands of tenants delay nothing.

use std::{fmt::Write, sync::Arc};

use netns::Interest;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use super::{
    metrics::{Counters, FAMILIES, Registry},
    request::{Method, Parsed, parse},
};

/// Tenants of one piece.
const PIECE: usize = 128;

/// A connection to the page.
pub(crate) struct Scrape {
    socket: OwnedFd,
    input: Vec<u8>,
    unsent: Vec<u8>,
    /// What is left of the page after that: the tenants, and the position of the next line.
    page: Option<(Vec<Arc<Counters>>, usize, usize)>,
    is_answered: bool,
    number: u64,
}

impl AsFd for Scrape {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Scrape {
    /// `number` is that of the connection.
    pub(crate) fn new(socket: OwnedFd, number: u64) -> Self {
        Self { socket, input: Vec::new(), unsent: Vec::new(), page: None, is_answered: false, number }
    }

    /// Returns the number of the connection: a later one has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Reads or writes once; returns what to wait for, or `None` at the end.
    pub(crate) fn turn(&mut self, registry: &Registry) -> Option<Interest> {
        if !self.is_answered {
            let mut buffer = [0; 2048];
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return None,
                Ok((_, length)) => self.input.extend_from_slice(&buffer[..length]),
                Err(Errno::AGAIN | Errno::INTR) => return Some(Interest::Read),
                Err(_) => return None,
            }
            if !self.answer(registry) {
                return Some(Interest::Read);
            }
        }
        if self.unsent.is_empty() {
            self.make_piece();
        }
        match send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
        }
        (!self.unsent.is_empty() || self.page.is_some()).then_some(Interest::Write)
    }

    /// Begins the answer if the request is complete.
    fn answer(&mut self, registry: &Registry) -> bool {
        let (status, has_page) = match parse(&self.input) {
            Parsed::Incomplete => return false,
            Parsed::Complete(request, _) if request.method == Method::Other => ("405 Method Not Allowed", false),
            Parsed::Complete(request, _) if request.path == "/metrics" => ("200 OK", request.method == Method::Get),
            Parsed::Complete(..) => ("404 Not Found", false),
            Parsed::Bad | Parsed::TooLong => ("400 Bad Request", false),
        };
        // The end of the connection is the end of the page, whose length is not known before.
        let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
        self.unsent = format!("HTTP/1.1 {status}\r\n{kind}\r\nConnection: close\r\n\r\n").into_bytes();
        self.page = has_page.then(|| (registry.all(), 0, 0));
        self.is_answered = true;
        true
    }

    fn make_piece(&mut self) {
        let Some((tenants, family, position)) = &mut self.page else { return };
        let Some((name, kind, help, value)) = FAMILIES.get(*family) else {
            self.page = None;
            return;
        };
        let mut text = String::new();
        if *position == 0 {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        for tenant in tenants.iter().skip(*position).take(PIECE) {
            let _ = writeln!(text, "{name}{{tenant=\"{}\"}} {}", escape(&tenant.name), value(tenant));
        }
        *position += PIECE;
        if *position >= tenants.len() {
            (*family, *position) = (*family + 1, 0);
        }
        self.unsent = text.into_bytes();
    }
}

/// Escapes the value of a label.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
