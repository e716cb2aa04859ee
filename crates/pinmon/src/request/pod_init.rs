use container::{Inputs, Invocation, Plan, Rootfs, Stdio};
use monitor_api::{Attachments, ContainerDescription, PodInit, Role, UserMappings};
use oci::{Capabilities, Linux, Namespace, NamespaceType, Process, Root, Spec, User};
use pod_init::{PATH, root};

use super::{
    Answer,
    create::{check_new, clone_init},
};
use crate::{
    containers::{Container, NESTING},
    failure::{of_container, system},
    link::RequestId,
    monitor::Monitor,
    output::Output,
    programs::Filter,
};

/// User id of nobody. The pod init needs no file and no capability.
const NOBODY: u32 = 65534;

/// Starts the init of a pod with a shared PID namespace: a container with a single file. Answered when it runs.
pub(super) fn pod_init(
    monitor: &mut Monitor,
    request_id: RequestId,
    init: PodInit,
    attachments: Attachments,
) -> Answer {
    let PodInit { container: id, cgroup, user } = init;
    check_new(monitor, &id)?;
    let operation = format!("start init of pod {id}");
    let rootfs = root(user.as_ref().map(UserMappings::root))
        .map_err(|e| system(format!("{operation}: create its root file system"), e))?;
    let namespaces = attachments
        .into_iter()
        .filter_map(|(role, fd)| match role {
            Role::Namespace(kind) => Some((kind, fd)),
            _ => None,
        })
        .collect();
    let mut spec = spec(&id, &cgroup, user.as_ref(), &namespaces);
    let seccomp =
        seccomp::compile(&seccomp::default_profile(&[])).map_err(|e| system(format!("{operation}: seccomp"), e))?;
    let inputs = Inputs {
        interpreter: None,
        rootfs: Rootfs::Mount(rootfs),
        mounts: Default::default(),
        namespaces,
        stdio: Stdio::default(),
        seccomp: Some(seccomp),
        invocation: Invocation { nesting: Some(NESTING), ..Invocation::default() },
    };
    let limits = &monitor.node.inherited_limits;
    spec.process.iter_mut().for_each(|process| limits.restore_open_files(process));
    let plan = Plan::new(&spec, inputs).map_err(|e| of_container(&operation, &e))?;
    let output = Output::new(&id, None, 0);
    let description = ContainerDescription {
        sandbox: id.clone(),
        id,
        cgroup,
        user_namespace: Some(spec.has_namespace(NamespaceType::User)),
        ..ContainerDescription::default()
    };
    let container = Container { pod_init: true, ..Container::new(description, Filter::Unknown) };
    clone_init(monitor, request_id, container, output, plan)
}

type JoinedNamespaces = std::collections::BTreeMap<NamespaceType, rustix::fd::OwnedFd>;

/// Returns nobody, or the last ids of a user namespace that does not map nobody.
fn nobody(user: Option<&UserMappings>) -> User {
    let choose = |map: &[oci::IdMapping]| {
        let has = |line: &oci::IdMapping| NOBODY.checked_sub(line.container_id).is_some_and(|at| at < line.size);
        let last = map.iter().map(|line| line.container_id.saturating_add(line.size.saturating_sub(1))).max();
        if map.iter().any(has) { NOBODY } else { last.unwrap_or(NOBODY) }
    };
    match user {
        Some(user) => User { uid: choose(&user.uids), gid: choose(&user.gids), ..User::default() },
        None => User { uid: NOBODY, gid: NOBODY, ..User::default() },
    }
}

fn spec(id: &str, cgroup: &str, user: Option<&UserMappings>, joined: &JoinedNamespaces) -> Spec {
    let new = [NamespaceType::Pid, NamespaceType::Mount, NamespaceType::Cgroup].into_iter();
    let kinds = new.filter(|kind| !joined.contains_key(kind)).chain(joined.keys().copied());
    Spec {
        oci_version: "1.3.0".into(),
        root: Some(Root { path: "/".into(), readonly: true }),
        process: Some(Process {
            args: vec![PATH.into()],
            cwd: "/".into(),
            user: nobody(user),
            capabilities: Some(Capabilities::default()),
            no_new_privileges: true,
            oom_score_adj: Some(-998),
            ..Process::default()
        }),
        annotations: [("io.pinion.pod-init".to_owned(), id.to_owned())].into(),
        linux: Some(Linux {
            cgroups_path: Some(cgroup.to_owned()),
            namespaces: kinds.map(|kind| Namespace { kind, path: None }).collect(),
            uid_mappings: user.map(|user| user.uids.clone()).unwrap_or_default(),
            gid_mappings: user.map(|user| user.gids.clone()).unwrap_or_default(),
            ..Linux::default()
        }),
        ..Spec::default()
    }
}
