//! Requests in waiting, each behind a token that is good for one connection.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::Request;

/// How long a token may stay unused.
const VALID: Duration = Duration::from_secs(60);
/// Most tokens in waiting.
const MAX: usize = 1000;
/// 192 random bits: 32 characters.
const BYTES: usize = 24;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TooMany {
    /// All are in waiting.
    #[error("{MAX} sessions wait for their clients to connect; each is forgotten after {} seconds", VALID.as_secs())]
    Waiting,
    /// The kernel gives no random bytes.
    #[error("make a token: {0}")]
    Random(#[from] io::Error),
}

/// The requests in waiting.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    by_token: HashMap<String, (Instant, Request)>,
    /// The oldest first; may name tokens that were taken.
    by_age: VecDeque<(Instant, String)>,
}

impl Tokens {
    /// A token for the request.
    pub(crate) fn put(&self, request: Request) -> Result<String, TooMany> {
        self.put_at(request, Instant::now())
    }

    fn put_at(&self, request: Request, now: Instant) -> Result<String, TooMany> {
        let token = random()?;
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.forget_old(now);
        if waiting.by_token.len() >= MAX {
            return Err(TooMany::Waiting);
        }
        waiting.by_age.push_back((now, token.clone()));
        waiting.by_token.insert(token.clone(), (now, request));
        Ok(token)
    }

    /// The token's request, once. `path` must be that of its URL.
    pub(crate) fn take(&self, path: &str, token: &str) -> Option<Request> {
        self.take_at(path, token, Instant::now())
    }

    fn take_at(&self, path: &str, token: &str, now: Instant) -> Option<Request> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (put, request) = waiting.by_token.remove(token)?;
        (now.duration_since(put) <= VALID && request.path() == path).then_some(request)
    }
}

impl Waiting {
    fn forget_old(&mut self, now: Instant) {
        while let Some((put, token)) = self.by_age.front() {
            let old = now.duration_since(*put) > VALID;
            if !old && self.by_token.contains_key(token) {
                return;
            }
            if old {
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
    fn a_token_is_taken_once() {
        let tokens = Tokens::default();
        let token = tokens.put(request("a")).expect("room");
        assert!(token.len() * 6 >= 128, "{token}");
        assert_eq!(tokens.take("portforward", &token), Some(request("a")));
        assert_eq!(tokens.take("portforward", &token), None);
    }

    #[test]
    fn a_token_is_for_its_own_path_and_worthless_after_another() {
        let tokens = Tokens::default();
        let token = tokens.put(request("a")).expect("room");
        assert_eq!(tokens.take("exec", &token), None);
        assert_eq!(tokens.take("portforward", &token), None);
    }

    #[test]
    fn a_token_ends_after_a_minute() {
        let tokens = Tokens::default();
        let start = Instant::now();
        let token = tokens.put_at(request("a"), start).expect("room");
        let other = tokens.put_at(request("b"), start).expect("room");
        assert!(tokens.take_at("portforward", &token, start + VALID).is_some());
        assert!(tokens.take_at("portforward", &other, start + VALID + Duration::from_millis(1)).is_none());
    }

    #[test]
    fn a_thousand_wait_and_make_room_by_age_or_use() {
        let tokens = Tokens::default();
        let start = Instant::now();
        let all: Vec<_> = (0..MAX).map(|n| tokens.put_at(request(&n.to_string()), start).expect("room")).collect();
        assert!(matches!(tokens.put_at(request("more"), start), Err(TooMany::Waiting)));
        assert!(tokens.take_at("portforward", &all[500], start).is_some());
        tokens.put_at(request("more"), start).expect("one was taken");
        assert!(matches!(tokens.put_at(request("more"), start), Err(TooMany::Waiting)));
        let later = start + VALID + Duration::from_millis(1);
        tokens.put_at(request("later"), later).expect("all are old");
        let waiting = tokens.0.lock().expect("not poisoned");
        assert_eq!((waiting.by_token.len(), waiting.by_age.len()), (1, 1));
    }

    #[test]
    fn used_tokens_leave_nothing() {
        let tokens = Tokens::default();
        for n in 0..3 * MAX {
            let token = tokens.put(request(&n.to_string())).expect("room");
            assert!(tokens.take("portforward", &token).is_some());
        }
        assert!(tokens.0.lock().expect("not poisoned").by_age.len() <= 1);
    }
}
