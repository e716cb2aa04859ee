//! Finds containers and pods by name, `pod/name`, id, or prefix of an id.

use cri_proto::v1;

use crate::{
    Client, Failure,
    human::{self, short},
};

/// Annotation on a pod that `pinion run` created for one container: the pod is removed together with the container.
pub(crate) const OWN_POD: &str = "io.pinion.own-pod";
/// Annotation on a container: its published ports, as `pinion ps` shows them.
pub(crate) const PORTS: &str = "io.pinion.ports";

/// Annotation on a pod: the log directory that `pinion run` created for it.
pub(crate) const LOGS: &str = "io.pinion.logs";

/// Lists all containers.
pub(crate) async fn containers(client: &mut Client) -> Result<Vec<v1::Container>, Failure> {
    Ok(client.runtime.list_containers(v1::ListContainersRequest::default()).await?.into_inner().containers)
}

/// Lists all pods.
pub(crate) async fn pods(client: &mut Client) -> Result<Vec<v1::PodSandbox>, Failure> {
    Ok(client.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items)
}

/// Returns the container with this name or id. Fails if there is none or the name is ambiguous.
pub(crate) async fn container(client: &mut Client, query: &str) -> Result<v1::Container, Failure> {
    match find_container(client, query).await? {
        Some(container) => Ok(container),
        None => Err(Failure::new(format!("no container {query:?}; see: pinion ps -a"))),
    }
}

/// Returns the container with this name or id, or `None`. Fails if the name is ambiguous.
pub(crate) async fn find_container(client: &mut Client, query: &str) -> Result<Option<v1::Container>, Failure> {
    let all = containers(client).await?;
    let pod = match query.split_once('/') {
        Some((pod, _)) => find_pod(client, pod).await?,
        None => None,
    };
    let name = query.split_once('/').map_or(query, |(_, name)| name);
    let named = |c: &&v1::Container| name_of(c) == name && pod.as_ref().is_none_or(|p| p.id == c.pod_sandbox_id);
    let by_name: Vec<&v1::Container> = all.iter().filter(named).collect();
    // A pod may have several attempts of a container under one name: the name refers to the last one.
    let by_name = newest(by_name, |c| (&c.pod_sandbox_id, c.created_at));
    one("container", query, by_name, all.iter().filter(|c| is_prefix(query, &c.id)).collect(), |c| &c.id)
}

/// Returns the pod with this name or id. Fails if there is none or the name is ambiguous.
pub(crate) async fn pod(client: &mut Client, query: &str) -> Result<v1::PodSandbox, Failure> {
    match find_pod(client, query).await? {
        Some(pod) => Ok(pod),
        None => Err(Failure::new(format!("no pod {query:?}; see: pinion pods"))),
    }
}

/// Returns the pod with this name or id, or `None`. Fails if the name is ambiguous.
pub(crate) async fn find_pod(client: &mut Client, query: &str) -> Result<Option<v1::PodSandbox>, Failure> {
    pod_of(&pods(client).await?, query, 1)
}

/// Returns the pod with this name or at least a short id, or `None`. Fails if the name is ambiguous. Shorter prefixes of ids are
/// not accepted: `db` may be the name of a pod that is to be created, and the begin of the id of any other.
pub(crate) async fn find_named_pod(client: &mut Client, name: &str) -> Result<Option<v1::PodSandbox>, Failure> {
    pod_of(&pods(client).await?, name, human::SHORT)
}

/// Finds a pod by its name, or by a prefix of its id that has at least `shortest` characters.
fn pod_of(all: &[v1::PodSandbox], query: &str, shortest: usize) -> Result<Option<v1::PodSandbox>, Failure> {
    let named = all.iter().filter(|p| pod_name(p) == query).collect();
    let by_name = newest(named, |p| (p.metadata.as_ref().map(|m| m.uid.as_str()), p.created_at));
    let by_id = all.iter().filter(|p| query.len() >= shortest && is_prefix(query, &p.id)).collect();
    one("pod", query, by_name, by_id, |p| &p.id)
}

/// Returns the name of a container, or an empty string if it has no metadata.
pub(crate) fn name_of(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |m| m.name.as_str())
}

/// Returns the name of a pod, or an empty string if it has no metadata.
pub(crate) fn pod_name(pod: &v1::PodSandbox) -> &str {
    pod.metadata.as_ref().map_or("", |m| m.name.as_str())
}

/// Returns the newest item of each group. `key` returns the group and the creation time of an item.
fn newest<T, G: PartialEq>(mut items: Vec<T>, key: impl Fn(&T) -> (G, i64)) -> Vec<T> {
    items.sort_by_key(|item| std::cmp::Reverse(key(item).1));
    let mut newest: Vec<T> = Vec::new();
    for item in items {
        if !newest.iter().any(|other| key(other).0 == key(&item).0) {
            newest.push(item);
        }
    }
    newest
}

fn is_prefix(query: &str, id: &str) -> bool {
    !query.is_empty() && id.starts_with(query)
}

/// Returns the only match. A name takes precedence over the prefix of an id; an ambiguous query is an error that lists
/// the ids.
fn one<T: Clone>(
    kind: &str,
    query: &str,
    by_name: Vec<&T>,
    by_id: Vec<&T>,
    id: fn(&T) -> &str,
) -> Result<Option<T>, Failure> {
    let matches = if by_name.is_empty() { by_id } else { by_name };
    match matches[..] {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        _ => {
            let ids: Vec<&str> = matches.iter().map(|item| short(id(item))).collect();
            Err(Failure::new(format!(
                "{query:?} is the name of {} {kind}s: {}; use an id",
                matches.len(),
                ids.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_precedence_over_ids_and_must_be_unambiguous() {
        let (a, b) = ("aaa".to_owned(), "aab".to_owned());
        let pick = |by_name: Vec<&String>, by_id: Vec<&String>| {
            one("container", "x", by_name, by_id, |t| t.as_str()).map_err(|f| f.to_string())
        };
        assert_eq!(pick(vec![&a], vec![&b]), Ok(Some(a.clone())));
        assert_eq!(pick(vec![], vec![&b]), Ok(Some(b.clone())));
        assert_eq!(pick(vec![], vec![]), Ok(None));
        assert!(pick(vec![], vec![&a, &b]).expect_err("ambiguous").contains("aaa, aab"));
    }

    #[test]
    fn the_name_of_a_new_pod_is_not_the_begin_of_an_id() {
        let pod = v1::PodSandbox { id: format!("db{}", "0".repeat(62)), ..Default::default() };
        let find = |query: &str, shortest| pod_of(std::slice::from_ref(&pod), query, shortest).map(|pod| pod.is_some());
        assert!(find("db", 1).is_ok_and(|found| found), "an id of a pod that exists");
        assert!(find("db", human::SHORT).is_ok_and(|found| !found));
        assert!(find("db0000000000", human::SHORT).is_ok_and(|found| found), "the short id that is shown");
    }

    #[test]
    fn the_last_attempt_is_selected() {
        let newest = newest(vec![("pod", 1), ("pod", 3), ("other", 2)], |item| (item.0, item.1));
        assert_eq!(newest, [("pod", 3), ("other", 2)]);
    }
}
