//! The objects that a request names, for its log lines and its span. Never its content (environment, credentials,
//! commands).

use cri_proto::{pinion, v1};
use tonic::Streaming;

/// Names and ids in a request, exactly as the client sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject<'a> {
    /// Sandbox id.
    pub(crate) sandbox: Option<&'a str>,
    /// Pod name.
    pub(crate) pod: Option<&'a str>,
    /// Pod namespace.
    pub(crate) namespace: Option<&'a str>,
    /// Container id.
    pub(crate) container: Option<&'a str>,
    /// Name of a container that has no id yet.
    pub(crate) name: Option<&'a str>,
    /// Image reference.
    pub(crate) image: Option<&'a str>,
}

/// A request message that may name objects.
pub(crate) trait HasSubject {
    fn subject(&self) -> Subject<'_> {
        Subject::default()
    }
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn image(spec: Option<&v1::ImageSpec>) -> Option<&str> {
    spec.and_then(|spec| non_empty(&spec.image))
}

fn pod(config: Option<&v1::PodSandboxConfig>) -> Subject<'_> {
    let metadata = config.and_then(|config| config.metadata.as_ref());
    Subject {
        pod: metadata.and_then(|metadata| non_empty(&metadata.name)),
        namespace: metadata.and_then(|metadata| non_empty(&metadata.namespace)),
        ..Subject::default()
    }
}

macro_rules! of_containers {
    ($field:ident: $($message:ty,)*) => {$(
        impl HasSubject for $message {
            fn subject(&self) -> Subject<'_> {
                Subject { container: non_empty(&self.$field), ..Subject::default() }
            }
        }
    )*};
}

macro_rules! of_sandboxes {
    ($($message:ty,)*) => {$(
        impl HasSubject for $message {
            fn subject(&self) -> Subject<'_> {
                Subject { sandbox: non_empty(&self.pod_sandbox_id), ..Subject::default() }
            }
        }
    )*};
}

macro_rules! of_images {
    ($($message:ty,)*) => {$(
        impl HasSubject for $message {
            fn subject(&self) -> Subject<'_> {
                Subject { image: image(self.image.as_ref()), ..Subject::default() }
            }
        }
    )*};
}

macro_rules! of_nothing {
    ($($message:ty,)*) => {$( impl HasSubject for $message {} )*};
}

of_containers! { container_id:
    v1::StartContainerRequest,
    v1::StopContainerRequest,
    v1::RemoveContainerRequest,
    v1::ContainerStatusRequest,
    v1::UpdateContainerResourcesRequest,
    v1::ExecSyncRequest,
    v1::ExecRequest,
    v1::AttachRequest,
    v1::ContainerStatsRequest,
    v1::ReopenContainerLogRequest,
    v1::CheckpointContainerRequest,
}

of_containers! { container:
    pinion::KillRequest,
    pinion::WaitRequest,
}

of_sandboxes! {
    v1::StopPodSandboxRequest,
    v1::RemovePodSandboxRequest,
    v1::PodSandboxStatusRequest,
    v1::PodSandboxStatsRequest,
    v1::PortForwardRequest,
    v1::UpdatePodSandboxResourcesRequest,
    v1::CheckpointPodRequest,
    pinion::CheckPodRequest,
    pinion::ConnectNetworkRequest,
    pinion::DisconnectNetworkRequest,
}

of_images! {
    v1::ImageStatusRequest,
    v1::PullImageRequest,
    v1::RemoveImageRequest,
}

of_nothing! {
    v1::VersionRequest,
    v1::StatusRequest,
    v1::RuntimeConfigRequest,
    v1::UpdateRuntimeConfigRequest,
    v1::ListPodSandboxRequest,
    v1::ListContainersRequest,
    v1::ListContainerStatsRequest,
    v1::ListPodSandboxStatsRequest,
    v1::ListMetricDescriptorsRequest,
    v1::ListPodSandboxMetricsRequest,
    v1::StreamPodSandboxesRequest,
    v1::StreamContainersRequest,
    v1::StreamContainerStatsRequest,
    v1::StreamPodSandboxStatsRequest,
    v1::StreamPodSandboxMetricsRequest,
    v1::GetEventsRequest,
    v1::ListImagesRequest,
    v1::ImageFsInfoRequest,
    v1::StreamImagesRequest,
    pinion::SaveRequest,
    pinion::InfoRequest,
    pinion::WhyRequest,
    pinion::ConfigRequest,
    pinion::ReloadRequest,
    pinion::UpgradeMonitorRequest,
    pinion::UpgradeDaemonRequest,
    pinion::CreateNetworkRequest,
    pinion::ListNetworksRequest,
    pinion::InspectNetworkRequest,
    pinion::RemoveNetworkRequest,
}

impl<T> HasSubject for Streaming<T> {}

impl HasSubject for v1::RunPodSandboxRequest {
    fn subject(&self) -> Subject<'_> {
        pod(self.config.as_ref())
    }
}

impl HasSubject for v1::RestorePodRequest {
    fn subject(&self) -> Subject<'_> {
        pod(self.config.as_ref())
    }
}

impl HasSubject for v1::CreateContainerRequest {
    fn subject(&self) -> Subject<'_> {
        let config = self.config.as_ref();
        let metadata = config.and_then(|config| config.metadata.as_ref());
        Subject {
            sandbox: non_empty(&self.pod_sandbox_id),
            name: metadata.and_then(|metadata| non_empty(&metadata.name)),
            image: image(config.and_then(|config| config.image.as_ref())),
            ..pod(self.sandbox_config.as_ref())
        }
    }
}

impl HasSubject for pinion::PullRequest {
    fn subject(&self) -> Subject<'_> {
        Subject { image: non_empty(&self.reference), ..Subject::default() }
    }
}

impl HasSubject for pinion::UntagRequest {
    fn subject(&self) -> Subject<'_> {
        Subject { image: non_empty(&self.name), ..Subject::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_container_is_named_with_its_pod_and_image() {
        let metadata = v1::PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), ..Default::default() };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "abc".into(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 1 }),
                image: Some(v1::ImageSpec { image: "nginx:1".into(), ..Default::default() }),
                ..Default::default()
            }),
            sandbox_config: Some(v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }),
        };
        let expected = Subject {
            sandbox: Some("abc"),
            pod: Some("web"),
            namespace: Some("shop"),
            container: None,
            name: Some("app"),
            image: Some("nginx:1"),
        };
        assert_eq!(request.subject(), expected);
        assert_eq!(v1::CreateContainerRequest::default().subject(), Subject::default());
    }
}
