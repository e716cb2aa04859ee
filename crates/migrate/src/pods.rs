//! The pods of an engine.

use std::collections::BTreeMap;

use serde::Serialize;

/// A pod that stops when the engine is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Pod {
    /// Its namespace in Kubernetes.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Number of its containers, including those that have exited.
    pub containers: usize,
    /// Names of the runtimes of its containers, such as `io.containerd.kata.v2`.
    pub runtimes: Vec<String>,
}

/// Collects pods from records of containers.
#[derive(Debug, Default)]
pub(crate) struct Pods(BTreeMap<(String, String), Pod>);

impl Pods {
    /// Adds a container; the pod's own, without a program of the user, does not count.
    pub(crate) fn add(&mut self, namespace: &str, name: &str, is_sandbox: bool, runtime: Option<&str>) {
        let pod = self.0.entry((namespace.to_owned(), name.to_owned())).or_default();
        namespace.clone_into(&mut pod.namespace);
        name.clone_into(&mut pod.name);
        pod.containers += usize::from(!is_sandbox);
        if let Some(runtime) = runtime.filter(|runtime| !pod.runtimes.iter().any(|known| known == runtime)) {
            pod.runtimes.push(runtime.to_owned());
        }
    }

    /// Adds a container that is named as dockershim, cri-dockerd and CRI-O name them:
    /// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`, with `POD` for the pod's own.
    pub(crate) fn add_named(&mut self, name: &str) {
        let parts: Vec<&str> = name.trim_start_matches('/').split('_').collect();
        if let ["k8s", container, pod, namespace, _, ..] = parts[..] {
            self.add(namespace, pod, container == "POD", None);
        }
    }

    pub(crate) fn finish(self) -> Vec<Pod> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_known_by_the_names_of_containers() {
        let mut pods = Pods::default();
        for name in ["/k8s_POD_web-1_default_u1_0", "k8s_app_web-1_default_u1_3", "/other", "k8s_x"] {
            pods.add_named(name);
        }
        pods.add("kube-system", "dns", false, Some("kata"));
        let pods = pods.finish();
        let names: Vec<_> =
            pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str(), pod.containers)).collect();
        assert_eq!(names, [("default", "web-1", 1), ("kube-system", "dns", 1)]);
        assert_eq!(pods[1].runtimes, ["kata"]);
    }
}
