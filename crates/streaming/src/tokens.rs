//! Pending requests, each with a token that is valid for one connection.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::Request;

/// How long a token is valid.
const VALID: Duration = Duration::from_secs(60);
/// Maximum number of unused tokens.
const MAX: usize = 1000;
/// Length of a token: 192 random bits, encoded in 32 characters.
const BYTES: usize = 24;

/// The error when no token can be issued.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// All tokens are in use.
    #[error("issue a session URL: {MAX} URLs are unused; each expires after {} s", VALID.as_secs())]
    TooMany,
    /// The kernel does not provide random bytes.
    #[error("issue a session URL: read random bytes: {0}")]
    Random(#[from] io::Error),
}

impl TokenError {
    /// Returns the category, in terms of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::TooMany => io::ErrorKind::QuotaExceeded,
            Self::Random(cause) => cause.kind(),
        }
    }

    /// Returns the operation that failed. Its object is a URL that does not exist yet.
    pub fn operation(&self) -> &'static str {
        "issue a session URL"
    }
}

/// The pending requests by token.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<PendingRequests>);

#[derive(Debug, Default)]
struct PendingRequests {
    by_token: HashMap<String, (Instant, Request)>,
    /// Tokens by age, the oldest first. May contain tokens that have been used.
    by_age: VecDeque<(Instant, String)>,
}

impl Tokens {
    /// Issues a token for the request.
    pub(crate) fn put(&self, request: Request) -> Result<String, TokenError> {
        self.put_at(request, Instant::now())
    }

    fn put_at(&self, request: Request, now: Instant) -> Result<String, TokenError> {
        let token = random()?;
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.remove_expired(now);
        if pending.by_token.len() >= MAX {
            return Err(TokenError::TooMany);
        }
        pending.by_age.push_back((now, token.clone()));
        pending.by_token.insert(token.clone(), (now, request));
        Ok(token)
    }

    /// Returns the token's request and invalidates the token. `path` must be that of the request.
    pub(crate) fn take(&self, path: &str, token: &str) -> Option<Request> {
        self.take_at(path, token, Instant::now())
    }

    fn take_at(&self, path: &str, token: &str, now: Instant) -> Option<Request> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (put, request) = pending.by_token.remove(token)?;
        (now.duration_since(put) <= VALID && request.path() == path).then_some(request)
    }
}

impl PendingRequests {
    fn remove_expired(&mut self, now: Instant) {
        while let Some((put, token)) = self.by_age.front() {
            let expired = now.duration_since(*put) > VALID;
            if !expired && self.by_token.contains_key(token) {
                return;
            }
            if expired {
                self.by_token.remove(token);
            }
            self.by_age.pop_front();
        }
    }
}

fn random() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortForward;

    fn request(sandbox: &str) -> Request {
        Request::PortForward(PortForward { sandbox: sandbox.into(), ports: Vec::new() })
    }

    #[test]
    fn a_token_can_be_used_once() {
        let tokens = Tokens::default();
        let token = tokens.put(request("a")).expect("issue a token");
        assert!(token.len() * 6 >= 128, "{token}");
        assert_eq!(tokens.take("portforward", &token), Some(request("a")));
        assert_eq!(tokens.take("portforward", &token), None);
    }

    #[test]
    fn a_token_is_invalid_after_use_with_another_path() {
        let tokens = Tokens::default();
        let token = tokens.put(request("a")).expect("issue a token");
        assert_eq!(tokens.take("exec", &token), None);
        assert_eq!(tokens.take("portforward", &token), None);
    }

    #[test]
    fn a_token_expires_after_a_minute() {
        let tokens = Tokens::default();
        let start = Instant::now();
        let token = tokens.put_at(request("a"), start).expect("issue a token");
        let other = tokens.put_at(request("b"), start).expect("issue a token");
        assert!(tokens.take_at("portforward", &token, start + VALID).is_some());
        assert!(tokens.take_at("portforward", &other, start + VALID + Duration::from_millis(1)).is_none());
    }

    #[test]
    fn unused_tokens_are_limited() {
        let tokens = Tokens::default();
        let start = Instant::now();
        let all: Vec<_> =
            (0..MAX).map(|n| tokens.put_at(request(&n.to_string()), start).expect("issue a token")).collect();
        assert!(matches!(tokens.put_at(request("more"), start), Err(TokenError::TooMany)));
        assert!(tokens.take_at("portforward", &all[500], start).is_some());
        tokens.put_at(request("more"), start).expect("one was used");
        assert!(matches!(tokens.put_at(request("more"), start), Err(TokenError::TooMany)));
        let later = start + VALID + Duration::from_millis(1);
        tokens.put_at(request("later"), later).expect("all are expired");
        let pending = tokens.0.lock().expect("not poisoned");
        assert_eq!((pending.by_token.len(), pending.by_age.len()), (1, 1));
    }

    #[test]
    fn used_tokens_leave_nothing() {
        let tokens = Tokens::default();
        for n in 0..3 * MAX {
            let token = tokens.put(request(&n.to_string())).expect("issue a token");
            assert!(tokens.take("portforward", &token).is_some());
        }
        assert!(tokens.0.lock().expect("not poisoned").by_age.len() <= 1);
    }
}
