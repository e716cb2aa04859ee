//! Authentication: Basic, and Bearer tokens (distribution specification, "token authentication"; OAuth2 for refresh
//! tokens).

use base64::Engine;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use super::{
    endpoint::Endpoint,
    response::{ANSWER_TIMEOUT, chain, read_bounded},
};
use crate::{Credentials, Error, ErrorKind};

/// Largest response of a token service, in bytes.
const TOKEN_MAX: usize = 64 * 1024;

/// An authentication challenge (`WWW-Authenticate`).
pub(crate) enum Challenge {
    Basic,
    Bearer(Bearer),
}

/// A token service, and the parameters of a request to it.
pub(crate) struct Bearer {
    pub(crate) realm: Url,
    service: Option<String>,
    scope: Option<String>,
}

/// A request for a token.
pub(crate) struct TokenRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) bearer: &'a Bearer,
    pub(crate) repository: &'a str,
}

/// Returns the best challenge: Bearer before Basic.
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

/// Splits `key="value",key=value`. A quoted value may contain commas.
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

/// Returns the value of `Authorization` for Basic authentication.
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

/// Returns the value of `Authorization` with a bearer token, which is requested from the token service.
pub(crate) async fn token(
    client: &Client,
    token_request: TokenRequest<'_>,
    credentials: Option<&Credentials>,
) -> Result<String, Error> {
    let endpoint = token_request.endpoint;
    if let Some(token) = credentials.map(|c| &c.registry_token).filter(|token| !token.is_empty()) {
        return Ok(format!("Bearer {token}"));
    }
    let scope =
        token_request.bearer.scope.clone().unwrap_or_else(|| format!("repository:{}:pull", token_request.repository));
    let mut parameters = vec![("scope", scope)];
    if let Some(service) = &token_request.bearer.service {
        parameters.push(("service", service.clone()));
    }
    let mut url = token_request.bearer.realm.clone();
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
    let service = token_request.bearer.realm.host_str().unwrap_or_default();
    let unreachable = |cause: reqwest::Error| {
        Error::unavailable(format!(
            "token service {service} of registry {}: {}",
            endpoint.display_name(),
            chain(&cause.without_url())
        ))
    };
    // Redirects are not followed: the request contains the password or the refresh token.
    let result = tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await;
    let response = match result {
        Ok(result) => result.map_err(unreachable)?,
        Err(_) => {
            let (server, seconds) = (endpoint.display_name(), ANSWER_TIMEOUT.as_secs());
            return Err(Error::unavailable(format!(
                "token service {service} of registry {server}: request timed out after {seconds} s"
            )));
        }
    };
    match response.status() {
        status if status.is_success() => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(refused(endpoint, credentials, "")),
        status => {
            let server = endpoint.display_name();
            return Err(Error::unavailable(format!("token service {service} of registry {server} returned {status}")));
        }
    }
    let body = read_bounded(response, TOKEN_MAX).await?;
    let parsed: Option<Token> = serde_json::from_slice(&body).ok();
    let token = parsed.map(|body| if body.token.is_empty() { body.access_token } else { body.token });
    match token.filter(|token| !token.is_empty()) {
        Some(token) => Ok(format!("Bearer {token}")),
        None => Err(Error::unavailable(format!(
            "token service {service} of registry {} sent no token",
            endpoint.display_name()
        ))),
    }
}

/// Returns an error of kind [`ErrorKind::Unauthorized`], which states whether credentials were sent.
pub(crate) fn refused(endpoint: &Endpoint, credentials: Option<&Credentials>, reason: &str) -> Error {
    let server = endpoint.display_name();
    let tail = match (reason, credentials) {
        ("", Some(c)) if !c.username.is_empty() => {
            format!("the credentials of user {:?} are not accepted or may not pull this", c.username)
        }
        ("", Some(_)) => "the token is not accepted or may not pull this".to_owned(),
        ("", None) => "no credentials were given, and it is not public or does not exist".to_owned(),
        (reason, _) => reason.to_owned(),
    };
    Error::new(ErrorKind::Unauthorized, format!("registry {server} refuses access: {tail}"))
}

#[cfg(test)]
mod tests {
    use super::{Challenge, choose};

    #[test]
    fn a_bearer_challenge_takes_precedence_over_basic() {
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
