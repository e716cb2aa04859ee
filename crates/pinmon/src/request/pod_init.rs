use container::{Inputs, Plan, Rootfs, Stdio};
use monitor_api::{Attachments, LogOptions, PodInit, Role};
use oci::{Capabilities, Linux, Namespace, NamespaceType, Process, Root, Spec, User};

use super::Answer;
use crate::{
    child::{Child, Stage},
    connection::Asked,
    failure::{of_container, system},
    monitor::Monitor,
    output::Output,
    pod_init::{PATH, root},
    programs::Filter,
};

/// Nobody: it needs no file and no right.
const NOBODY: u32 = 65534;

impl Monitor {
    /// Starts the init of a pod that shares one PID namespace: a container of one file, answered when it runs.
    pub(super) fn pod_init(&mut self, asked: Asked, init: PodInit, attachments: Attachments) -> Answer {
        let PodInit { container: id, cgroup } = init;
        self.check_new(&id)?;
        let what = format!("start init of pod {id}");
        let rootfs = root().map_err(|e| system(format!("{what}: make its root"), e))?;
        let namespaces = attachments
            .into_iter()
            .filter_map(|(role, fd)| match role {
                Role::Namespace(kind) => Some((kind, fd)),
                _ => None,
            })
            .collect();
        let spec = spec(&id, &cgroup, &namespaces);
        let seccomp =
            seccomp::compile(&seccomp::default_profile(&[])).map_err(|e| system(format!("{what}: seccomp"), e))?;
        let inputs = Inputs {
            rootfs: Rootfs::Mount(rootfs),
            mounts: Default::default(),
            namespaces,
            stdio: Stdio::default(),
            seccomp: Some(seccomp),
            invocation: Default::default(),
        };
        let plan = Plan::new(&spec, inputs).map_err(|e| of_container(&what, &e))?;
        let child = Child {
            sandbox: id.clone(),
            id,
            cgroup,
            pid: 0,
            start_time: 0,
            pidfd: None,
            group: None,
            log: LogOptions::default(),
            output: Output::default(),
            stdin: None,
            filter: Filter::Unknown,
            pod_init: true,
            stage: Stage::Changing,
            warnings: Vec::new(),
            deletes: Vec::new(),
            removals: 0,
        };
        self.clone_child(asked, child, plan, &spec)?;
        Ok(None)
    }
}

fn spec(id: &str, cgroup: &str, joined: &std::collections::BTreeMap<NamespaceType, rustix::fd::OwnedFd>) -> Spec {
    let new = [NamespaceType::Pid, NamespaceType::Mount, NamespaceType::Cgroup].into_iter();
    let kinds = new.filter(|kind| !joined.contains_key(kind)).chain(joined.keys().copied());
    Spec {
        oci_version: "1.3.0".into(),
        root: Some(Root { path: "/".into(), readonly: true }),
        process: Some(Process {
            args: vec![PATH.into()],
            cwd: "/".into(),
            user: User { uid: NOBODY, gid: NOBODY, ..User::default() },
            capabilities: Some(Capabilities::default()),
            no_new_privileges: true,
            oom_score_adj: Some(-998),
            ..Process::default()
        }),
        annotations: [("dev.pinion.pod-init".to_owned(), id.to_owned())].into(),
        linux: Some(Linux {
            cgroups_path: Some(cgroup.to_owned()),
            namespaces: kinds.map(|kind| Namespace { kind, path: None }).collect(),
            ..Linux::default()
        }),
        ..Spec::default()
    }
}
