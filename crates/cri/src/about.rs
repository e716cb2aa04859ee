//! What a request is about, for its log lines and its span: never its content (environment, credentials, commands).

use cri_proto::{pinion, v1};
use tonic::Streaming;

/// Names that a request has, as it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct About<'a> {
    /// Sandbox id.
    pub(crate) sandbox: Option<&'a str>,
    /// Pod's name.
    pub(crate) pod: Option<&'a str>,
    /// Its namespace.
    pub(crate) namespace: Option<&'a str>,
    /// Container id.
    pub(crate) container: Option<&'a str>,
    /// The name of one that has no id yet.
    pub(crate) name: Option<&'a str>,
    /// Image reference.
    pub(crate) image: Option<&'a str>,
}

/// A request that may name something.
pub(crate) trait Names {
    fn about(&self) -> About<'_> {
        About::default()
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn image(spec: Option<&v1::ImageSpec>) -> Option<&str> {
    spec.and_then(|spec| given(&spec.image))
}

fn pod(config: Option<&v1::PodSandboxConfig>) -> About<'_> {
    let metadata = config.and_then(|config| config.metadata.as_ref());
    About {
        pod: metadata.and_then(|metadata| given(&metadata.name)),
        namespace: metadata.and_then(|metadata| given(&metadata.namespace)),
        ..About::default()
    }
}

macro_rules! of_containers {
    ($field:ident: $($message:ty,)*) => {$(
        impl Names for $message {
            fn about(&self) -> About<'_> {
                About { container: given(&self.$field), ..About::default() }
            }
        }
    )*};
}

macro_rules! of_sandboxes {
    ($($message:ty,)*) => {$(
        impl Names for $message {
            fn about(&self) -> About<'_> {
                About { sandbox: given(&self.pod_sandbox_id), ..About::default() }
            }
        }
    )*};
}

macro_rules! of_images {
    ($($message:ty,)*) => {$(
        impl Names for $message {
            fn about(&self) -> About<'_> {
                About { image: image(self.image.as_ref()), ..About::default() }
            }
        }
    )*};
}

macro_rules! of_nothing {
    ($($message:ty,)*) => {$( impl Names for $message {} )*};
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
    v1::RestorePodRequest,
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
}

impl<T> Names for Streaming<T> {}

impl Names for v1::RunPodSandboxRequest {
    fn about(&self) -> About<'_> {
        pod(self.config.as_ref())
    }
}

impl Names for v1::CreateContainerRequest {
    fn about(&self) -> About<'_> {
        let config = self.config.as_ref();
        let metadata = config.and_then(|config| config.metadata.as_ref());
        About {
            sandbox: given(&self.pod_sandbox_id),
            name: metadata.and_then(|metadata| given(&metadata.name)),
            image: image(config.and_then(|config| config.image.as_ref())),
            ..pod(self.sandbox_config.as_ref())
        }
    }
}

impl Names for pinion::PullRequest {
    fn about(&self) -> About<'_> {
        About { image: given(&self.reference), ..About::default() }
    }
}

impl Names for pinion::UntagRequest {
    fn about(&self) -> About<'_> {
        About { image: given(&self.name), ..About::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_to_be_is_named_with_its_pod_and_image() {
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
        let expected = About {
            sandbox: Some("abc"),
            pod: Some("web"),
            namespace: Some("shop"),
            container: None,
            name: Some("app"),
            image: Some("nginx:1"),
        };
        assert_eq!(request.about(), expected);
        assert_eq!(v1::CreateContainerRequest::default().about(), About::default());
    }
}
