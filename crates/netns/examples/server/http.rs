//! Static files over HTTP/1.1, with connections that are kept.

use std::sync::Arc;

use rustix::{
    fd::OwnedFd,
    net::{Shutdown, shutdown},
};

use super::{
    content::{Content, Page},
    echo::{receive, transmit},
    request::{self, LENGTH_MAX, Method, Parsed, Request},
    shard::Next,
    tenant::Tenant,
};

/// Most bytes that are read and ignored after the last answer, so that the client gets it before the connection ends.
const IGNORED_MAX: usize = 64 * 1024;
/// Bytes of one write.
const WRITE_MAX: usize = 64 * 1024;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Http {
    /// Received, and not yet part of a request.
    input: Vec<u8>,
    answer: Option<Answer>,
    /// The last answer was sent; this many bytes were ignored since.
    ended: Option<usize>,
}

/// An answer that is being sent.
#[derive(Debug)]
struct Answer {
    head: Vec<u8>,
    body: Arc<[u8]>,
    sent: usize,
    is_last: bool,
}

impl Http {
    /// Reads at most once, then answers what is complete, as long as the tenant has its turn and takes the answers.
    pub(crate) fn turn(
        &mut self,
        socket: &OwnedFd,
        tenant: &Tenant,
        content: &Content,
        turn: u64,
        buffer: &mut [u8],
    ) -> Next {
        let mut may_read = true;
        loop {
            if let Some(answer) = &mut self.answer {
                match answer.send(socket, tenant) {
                    Ok(true) => self.end_answer(socket),
                    Ok(false) => return Next::Write,
                    Err(next) => return next,
                }
                if !tenant.take(turn) {
                    return if self.input.is_empty() { Next::Read } else { Next::Again };
                }
            }
            if self.ended.is_none() && self.answer_next(tenant, content) {
                continue;
            }
            if !may_read {
                return Next::Read;
            }
            may_read = false;
            match receive(socket, tenant, buffer) {
                Ok(0) => return Next::Close,
                Ok(length) => match &mut self.ended {
                    Some(ignored) if *ignored + length > IGNORED_MAX => return Next::Close,
                    Some(ignored) => *ignored += length,
                    None => self.input.extend_from_slice(&buffer[..length]),
                },
                Err(next) => return next,
            }
        }
    }

    fn end_answer(&mut self, socket: &OwnedFd) {
        if self.answer.take().is_some_and(|answer| answer.is_last) {
            self.input = Vec::new();
            self.ended = Some(0);
            // The connection may be broken already, which the next read shows.
            let _ = shutdown(socket, Shutdown::Write);
        }
        if self.input.is_empty() {
            // A connection that waits takes no memory for this.
            self.input = Vec::new();
        }
    }

    /// Prepares the answer to the first request; returns whether there is one.
    fn answer_next(&mut self, tenant: &Tenant, content: &Content) -> bool {
        let answer = match request::parse(&self.input) {
            Parsed::Incomplete => return false,
            Parsed::Complete(request, length) => {
                self.input.drain(..length);
                respond(&request, tenant, content)
            }
            Parsed::Bad => failure("400 Bad Request", tenant),
            Parsed::TooLong => failure("431 Request Header Fields Too Large", tenant),
        };
        tenant.counters.requests.add(1);
        self.answer = Some(answer);
        true
    }
}

impl Answer {
    fn new(status: &str, fields: &str, page: Page, is_last: bool, method: Method) -> Self {
        let (length, kind) = (page.body.len(), page.kind);
        let close = if is_last { "Connection: close\r\n" } else { "" };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{fields}{close}\r\n");
        let body = if method == Method::Head { Arc::default() } else { page.body };
        Self { head: head.into(), body, sent: 0, is_last }
    }

    /// Sends once; returns whether that was all.
    fn send(&mut self, socket: &OwnedFd, tenant: &Tenant) -> Result<bool, Next> {
        if self.sent == 0 && self.head.len() + self.body.len() <= WRITE_MAX {
            self.head.extend_from_slice(&self.body);
            self.body = Arc::default();
        }
        let rest = match self.sent.checked_sub(self.head.len()) {
            None => &self.head[self.sent..],
            Some(start) => &self.body[start..self.body.len().min(start + WRITE_MAX)],
        };
        self.sent += transmit(socket, tenant, rest)?;
        Ok(self.sent == self.head.len() + self.body.len())
    }
}

fn text(body: String) -> Page {
    Page { kind: "text/plain; charset=utf-8", body: body.into_bytes().into() }
}

/// Answers a valid request.
fn respond(request: &Request, tenant: &Tenant, content: &Content) -> Answer {
    let is_last = !request.is_kept;
    if request.method == Method::Other {
        let page = text("405 Method Not Allowed\n".to_owned());
        // What follows may be the body of the request.
        return Answer::new("405 Method Not Allowed", "Allow: GET, HEAD\r\n", page, true, Method::Get);
    }
    let greeting = || (request.path == "/").then(|| text(format!("tenant {}\n", tenant.counters.name)));
    match content.page(&request.path).or_else(greeting) {
        Some(page) => Answer::new("200 OK", "", page, is_last, request.method),
        None => Answer::new("404 Not Found", "", text("404 Not Found\n".to_owned()), is_last, request.method),
    }
}

/// Answers what is not a valid request; where the next one begins is not known.
fn failure(status: &str, tenant: &Tenant) -> Answer {
    tenant.counters.errors.add(1);
    Answer::new(status, "", text(format!("{status}\n")), true, Method::Get)
}

const _: () = assert!(LENGTH_MAX < IGNORED_MAX);
