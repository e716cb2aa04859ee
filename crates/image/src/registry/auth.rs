//! Authentication: Basic, and Bearer tokens (distribution specification, "token authentication"; OAuth2 for refresh
//! tokens).

use base64::Engine;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use super::{
    client::{ANSWER_TIMEOUT, bounded, chain},
    endpoint::Endpoint,
};
use crate::{Credentials, Error, ErrorKind};

/// Largest answer of a token service.
const TOKEN_MAX: usize = 64 * 1024;

/// What `WWW-Authenticate` asks for.
pub(crate) enum Challenge {
    Basic,
    Bearer(Bearer),
}

/// A token service, and what to ask it for.
pub(crate) struct Bearer {
    pub(crate) realm: Url,
    service: Option<String>,
    scope: Option<String>,
}

/// A token for what.
pub(crate) struct Wanted<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) bearer: &'a Bearer,
    pub(crate) repository: &'a str,
}

/// The best challenge: a token before a password.
pub(crate) fn choose<'a>(challenges: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for challenge in challenges {
        let (scheme, rest) = challenge.trim().split_once(' ').unwrap_or((challenge.trim(), ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            if let Some(bearer) = bearer(rest) {
                return Some(Challenge::Bearer(bearer));
            }
        } else if scheme.eq_ignore_ascii_case("basic") {
            basic = Some(Challenge::Basic);
        }
    }
    basic
}

fn bearer(parameters: &str) -> Option<Bearer> {
    let (mut realm, mut service, mut scope) = (None, None, None);
    for (key, value) in split_parameters(parameters) {
        match key.to_ascii_lowercase().as_str() {
            "realm" => realm = value.parse().ok(),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
    }
    Some(Bearer { realm: realm?, service, scope })
}

/// `key="value",key=value`; a quoted value may hold commas.
fn split_parameters(mut text: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    while let Some((key, rest)) = text.split_once('=') {
        let key = key.trim_matches([' ', ',']).to_owned();
        let rest = rest.trim_start();
        let (value, next) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        parameters.push((key, value.trim().to_owned()));
        text = next;
    }
    parameters
}

/// `Authorization: Basic`.
pub(crate) fn basic(credentials: Option<&Credentials>) -> Option<String> {
    let credentials = credentials.filter(|credentials| !credentials.username.is_empty())?;
    let pair = format!("{}:{}", credentials.username, credentials.password);
    Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// `Authorization: Bearer`, from the token service.
pub(crate) async fn token(
    client: &Client,
    wanted: Wanted<'_>,
    credentials: Option<&Credentials>,
) -> Result<String, Error> {
    let endpoint = wanted.endpoint;
    if let Some(token) = credentials.map(|c| &c.registry_token).filter(|token| !token.is_empty()) {
        return Ok(format!("Bearer {token}"));
    }
    let scope = wanted.bearer.scope.clone().unwrap_or_else(|| format!("repository:{}:pull", wanted.repository));
    let mut parameters = vec![("scope", scope)];
    if let Some(service) = &wanted.bearer.service {
        parameters.push(("service", service.clone()));
    }
    let mut url = wanted.bearer.realm.clone();
    let request = match credentials.map(|c| &c.identity_token).filter(|token| !token.is_empty()) {
        Some(refresh) => {
            parameters.push(("grant_type", "refresh_token".into()));
            parameters.push(("refresh_token", refresh.clone()));
            parameters.push(("client_id", "pinion".into()));
            let mut form = Url::parse("http://form").expect("a constant URL");
            form.query_pairs_mut().extend_pairs(&parameters);
            let body = form.query().unwrap_or_default().to_owned();
            client.post(url).header("content-type", "application/x-www-form-urlencoded").body(body)
        }
        None => {
            url.query_pairs_mut().extend_pairs(&parameters);
            let request = client.get(url);
            match basic(credentials) {
                Some(basic) => request.header("authorization", basic),
                None => request,
            }
        }
    };
    let service = wanted.bearer.realm.host_str().unwrap_or_default();
    let unreachable = |cause: reqwest::Error| {
        Error::unavailable(format!(
            "token service {service} of registry {}: {}",
            endpoint.shown(),
            chain(&cause.without_url())
        ))
    };
    // No redirect is followed: the request has the password or the refresh token in it.
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await;
    let response = match answer {
        Ok(answer) => answer.map_err(unreachable)?,
        Err(_) => {
            let (shown, seconds) = (endpoint.shown(), ANSWER_TIMEOUT.as_secs());
            return Err(Error::unavailable(format!(
                "token service {service} of registry {shown} did not answer for {seconds} s"
            )));
        }
    };
    match response.status() {
        status if status.is_success() => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(refused(endpoint, credentials, "")),
        status => {
            let shown = endpoint.shown();
            return Err(Error::unavailable(format!("token service {service} of registry {shown} answers {status}")));
        }
    }
    let body = bounded(response, TOKEN_MAX).await?;
    let answer: Option<Token> = serde_json::from_slice(&body).ok();
    let token = answer.map(|answer| if answer.token.is_empty() { answer.access_token } else { answer.token });
    match token.filter(|token| !token.is_empty()) {
        Some(token) => Ok(format!("Bearer {token}")),
        None => {
            Err(Error::unavailable(format!("token service {service} of registry {} sent no token", endpoint.shown())))
        }
    }
}

/// Unauthorized: says whether credentials were sent, and what to do.
pub(crate) fn refused(endpoint: &Endpoint, credentials: Option<&Credentials>, why: &str) -> Error {
    let shown = endpoint.shown();
    let tail = match (why, credentials) {
        ("", Some(c)) if !c.username.is_empty() => {
            format!("the credentials of user {:?} are not accepted or may not pull this", c.username)
        }
        ("", Some(_)) => "the token is not accepted or may not pull this".to_owned(),
        ("", None) => "no credentials were given, and it is not public or does not exist".to_owned(),
        (why, _) => why.to_owned(),
    };
    Error::new(ErrorKind::Unauthorized, format!("registry {shown} refuses access: {tail}"))
}

#[cfg(test)]
mod tests {
    use super::{Challenge, choose};

    #[test]
    fn a_bearer_challenge_goes_before_basic() {
        let text = r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull,push""#;
        match choose(["Basic realm=x", text].into_iter()) {
            Some(Challenge::Bearer(bearer)) => {
                assert_eq!(bearer.realm.as_str(), "https://auth.example/token");
                assert_eq!(bearer.service.as_deref(), Some("reg"));
                assert_eq!(bearer.scope.as_deref(), Some("repository:a/b:pull,push"));
            }
            _ => panic!("a bearer challenge is expected"),
        }
        assert!(matches!(choose(["basic"].into_iter()), Some(Challenge::Basic)));
        assert!(choose(["Negotiate", "Bearer x=y"].into_iter()).is_none());
    }
}
