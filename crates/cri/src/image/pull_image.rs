use base64::{Engine as _, engine::general_purpose::STANDARD};
use cri_proto::v1;
use pod::Credentials;

use super::reference;
use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Names of Docker Hub in references and in stored credentials.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Pulls an image and returns its id.
pub(super) async fn handle(state: Shared, request: v1::PullImageRequest) -> Outcome<v1::PullImageResponse> {
    let name = reference(request.image)?;
    let credentials = match request.auth {
        Some(auth) if is_for(&auth.server_address, &name) => credentials(auth)?,
        _ => None,
    };
    let image = state.engine.pull_image(&name, credentials.as_ref(), None).await?;
    Ok(v1::PullImageResponse { image_ref: image.id })
}

/// Returns the credentials that kubelet or crictl sent: user name and password, both in one base64 string, or a token.
/// `None` if all are empty.
fn credentials(auth: v1::AuthConfig) -> Result<Option<Credentials>, Failure> {
    let mut credentials = Credentials {
        username: auth.username,
        password: auth.password,
        identity_token: auth.identity_token,
        registry_token: auth.registry_token,
    };
    if credentials.username.is_empty() && credentials.password.is_empty() && !auth.auth.is_empty() {
        (credentials.username, credentials.password) = basic(&auth.auth)?;
    }
    let fields =
        [&credentials.username, &credentials.password, &credentials.identity_token, &credentials.registry_token];
    Ok((!fields.iter().all(|text| text.is_empty())).then_some(credentials))
}

/// Decodes `base64(user:password)`, the format of Docker's configuration. Error messages never contain the input.
fn basic(text: &str) -> Result<(String, String), Failure> {
    let invalid = |reason: &str| Failure::invalid("auth.auth", reason);
    let bytes = STANDARD.decode(text.trim()).map_err(|_| invalid("is not base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 in base64"))?;
    let (user, password) = text.split_once(':').ok_or_else(|| invalid("is not user:password in base64"))?;
    Ok((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// Reports whether credentials for `server` may be used for `image`: they must never be sent to another registry.
fn is_for(server: &str, image: &str) -> bool {
    let server = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    let server = server.split('/').next().unwrap_or("");
    let host = match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DOCKER_HUB[0],
    };
    server.is_empty() || server == host || (DOCKER_HUB.contains(&server) && DOCKER_HUB.contains(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(auth: v1::AuthConfig) -> Option<(String, String)> {
        credentials(auth).expect("valid").map(|c| (c.username, c.password))
    }

    #[test]
    fn name_and_password_can_be_in_one_string() {
        let text = STANDARD.encode("user:pass:word");
        let found = auth(v1::AuthConfig { auth: text, ..Default::default() });
        assert_eq!(found, Some(("user".to_owned(), "pass:word".to_owned())));
        assert_eq!(auth(v1::AuthConfig::default()), None);
    }

    #[test]
    fn an_invalid_string_is_reported_without_its_content() {
        for text in ["%%%", "dXNlcg=="] {
            let failure =
                credentials(v1::AuthConfig { auth: text.to_owned(), ..Default::default() }).expect_err("invalid");
            assert!(failure.to_string().contains("auth.auth") && !failure.to_string().contains(text), "{failure}");
        }
    }

    #[test]
    fn credentials_stay_with_their_registry() {
        assert!(is_for("", "any.example/x"));
        assert!(is_for("https://reg.example:5000/v2/", "reg.example:5000/a/b:1"));
        assert!(is_for("https://index.docker.io/v1/", "busybox"));
        assert!(is_for("docker.io", "docker.io/library/busybox"));
        assert!(!is_for("reg.example", "other.example/a"));
        assert!(!is_for("reg.example", "busybox"));
    }
}
