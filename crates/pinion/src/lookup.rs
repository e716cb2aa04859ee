//! What people call things: a name, `pod/name`, an id, or the beginning of one.

use cri_proto::v1;

use crate::{Client, Failure, human::short};

/// On a pod that `pinion run` made for one container: it is removed with it.
pub(crate) const OWN_POD: &str = "io.pinion.own-pod";
/// On a container: its published ports, for `ps`.
pub(crate) const PORTS: &str = "io.pinion.ports";

/// On a pod: the directory of logs that `pinion run` made for it.
pub(crate) const LOGS: &str = "io.pinion.logs";

/// All containers.
pub(crate) async fn containers(client: &mut Client) -> Result<Vec<v1::Container>, Failure> {
    Ok(client.runtime.list_containers(v1::ListContainersRequest::default()).await?.into_inner().containers)
}

/// All pods.
pub(crate) async fn pods(client: &mut Client) -> Result<Vec<v1::PodSandbox>, Failure> {
    Ok(client.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items)
}

/// The one container that is meant.
pub(crate) async fn container(client: &mut Client, wanted: &str) -> Result<v1::Container, Failure> {
    match find_container(client, wanted).await? {
        Some(container) => Ok(container),
        None => Err(Failure::new(format!("no container {wanted:?}; see: pinion ps -a"))),
    }
}

/// The same, or none.
pub(crate) async fn find_container(client: &mut Client, wanted: &str) -> Result<Option<v1::Container>, Failure> {
    let all = containers(client).await?;
    let pod = match wanted.split_once('/') {
        Some((pod, _)) => find_pod(client, pod).await?,
        None => None,
    };
    let name = wanted.split_once('/').map_or(wanted, |(_, name)| name);
    let named = |c: &&v1::Container| name_of(c) == name && pod.as_ref().is_none_or(|p| p.id == c.pod_sandbox_id);
    let by_name: Vec<&v1::Container> = all.iter().filter(named).collect();
    // Attempts of one container of a pod follow each other: the last one is meant.
    let found = newest(by_name, |c| (&c.pod_sandbox_id, c.created_at));
    one("container", wanted, found, all.iter().filter(|c| is_prefix(wanted, &c.id)).collect(), |c| &c.id)
}

/// The one pod that is meant.
pub(crate) async fn pod(client: &mut Client, wanted: &str) -> Result<v1::PodSandbox, Failure> {
    match find_pod(client, wanted).await? {
        Some(pod) => Ok(pod),
        None => Err(Failure::new(format!("no pod {wanted:?}; see: pinion pods"))),
    }
}

/// The same, or none.
pub(crate) async fn find_pod(client: &mut Client, wanted: &str) -> Result<Option<v1::PodSandbox>, Failure> {
    let all = pods(client).await?;
    let named = all.iter().filter(|p| pod_name(p) == wanted).collect();
    let found = newest(named, |p| (p.metadata.as_ref().map(|m| m.uid.as_str()), p.created_at));
    one("pod", wanted, found, all.iter().filter(|p| is_prefix(wanted, &p.id)).collect(), |p| &p.id)
}

/// A container's name.
pub(crate) fn name_of(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |m| m.name.as_str())
}

/// A pod's name.
pub(crate) fn pod_name(pod: &v1::PodSandbox) -> &str {
    pod.metadata.as_ref().map_or("", |m| m.name.as_str())
}

/// Of each group only what was made last.
fn newest<T, G: PartialEq>(mut found: Vec<T>, key: impl Fn(&T) -> (G, i64)) -> Vec<T> {
    found.sort_by_key(|item| std::cmp::Reverse(key(item).1));
    let mut kept: Vec<T> = Vec::new();
    for item in found {
        if !kept.iter().any(|other| key(other).0 == key(&item).0) {
            kept.push(item);
        }
    }
    kept
}

fn is_prefix(wanted: &str, id: &str) -> bool {
    !wanted.is_empty() && id.starts_with(wanted)
}

/// A name goes before the beginning of an id; several of one kind are an error that lists them.
fn one<T: Clone>(
    kind: &str,
    wanted: &str,
    named: Vec<&T>,
    by_id: Vec<&T>,
    id: fn(&T) -> &str,
) -> Result<Option<T>, Failure> {
    let found = if named.is_empty() { by_id } else { named };
    match found[..] {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        _ => {
            let ids: Vec<&str> = found.iter().map(|item| short(id(item))).collect();
            Err(Failure::new(format!(
                "{wanted:?} is the name of {} {kind}s: {}; use an id",
                found.len(),
                ids.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_ids_and_must_be_clear() {
        let (a, b) = ("aaa".to_owned(), "aab".to_owned());
        let pick = |named: Vec<&String>, by_id: Vec<&String>| {
            one("container", "x", named, by_id, |t| t.as_str()).map_err(|f| f.to_string())
        };
        assert_eq!(pick(vec![&a], vec![&b]), Ok(Some(a.clone())));
        assert_eq!(pick(vec![], vec![&b]), Ok(Some(b.clone())));
        assert_eq!(pick(vec![], vec![]), Ok(None));
        assert!(pick(vec![], vec![&a, &b]).expect_err("unclear").contains("aaa, aab"));
    }

    #[test]
    fn the_last_attempt_is_meant() {
        let kept = newest(vec![("pod", 1), ("pod", 3), ("other", 2)], |item| (item.0, item.1));
        assert_eq!(kept, [("pod", 3), ("other", 2)]);
    }
}
