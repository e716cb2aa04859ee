//! Answers to `Create` and `PodInit`.

use container::ContainerSetup;
use monitor_api::{Attachments, Created, Failure, FailureKind, PodInitStarted, Reply, Role};
use oci::NamespaceType;
use rustix::fd::{AsFd, BorrowedFd};

use super::container::Container;
use crate::{closing::Terminal, failure::system, link::Answer, process::start_time};

impl Container {
    /// Returns the answer to `Create`.
    pub(crate) fn created(&self, setup: &ContainerSetup, terminal: Option<&Terminal>) -> Answer {
        let description = &self.description;
        let duplicate = |object: &str, fd: BorrowedFd<'_>| {
            let operation = || format!("create container {}: duplicate its {object}", description.id);
            fd.try_clone_to_owned().map_err(|e| system(operation(), e))
        };
        let mut attachments = Attachments::new()
            .with(Role::Pidfd, duplicate("pidfd", setup.pidfd.as_fd())?)
            .with(Role::Sync, duplicate("start gate", setup.sync())?);
        if let Some(terminal) = terminal {
            attachments.push(Role::Terminal, duplicate("terminal", terminal.as_fd())?);
        }
        let created =
            Created { pid: description.pid, start_time: description.start_time, warnings: self.warnings.clone() };
        Ok((Reply::Created(created), attachments))
    }

    /// Returns the answer to `Create` of a container that an OCI runtime created.
    pub(crate) fn created_by_runtime(&self, terminal: Option<&Terminal>) -> Answer {
        let description = &self.description;
        let operation = |object: &str| format!("create container {}: duplicate its {object}", description.id);
        let pidfd = self.pidfd.as_ref().ok_or_else(|| system(operation("pidfd"), "it is unknown"))?;
        let pidfd = pidfd.try_clone().map_err(|e| system(operation("pidfd"), e))?;
        let mut attachments = Attachments::new().with(Role::Pidfd, pidfd);
        if let Some(terminal) = terminal {
            let terminal = terminal.as_fd().try_clone_to_owned().map_err(|e| system(operation("terminal"), e))?;
            attachments.push(Role::Terminal, terminal);
        }
        let created = Created { pid: description.pid, start_time: description.start_time, warnings: Vec::new() };
        Ok((Reply::Created(created), attachments))
    }

    /// Returns the answer to `PodInit`.
    pub(crate) fn pod_init_started(&self) -> Answer {
        let operation = |step: &str| format!("start init of pod {}: {step}", self.description.id);
        let no_pidfd = || Failure::new(FailureKind::System, operation("it has no pidfd"));
        let pidfd = self.pidfd.as_ref().ok_or_else(no_pidfd)?;
        let path = format!("/proc/{}/ns/pid", self.pid());
        let namespace = std::fs::File::open(&path).map_err(|e| system(operation(&format!("open {path}")), e))?;
        let attachments = Attachments::new()
            .with(Role::Pidfd, pidfd.try_clone().map_err(|e| system(operation("duplicate its pidfd"), e))?)
            .with(Role::Namespace(NamespaceType::Pid), namespace.into());
        let started = PodInitStarted { pid: self.description.pid, start_time: start_time(self.pid()).unwrap_or(0) };
        Ok((Reply::PodInitStarted(started), attachments))
    }
}
