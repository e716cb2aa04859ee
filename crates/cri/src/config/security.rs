use cri_proto::v1::{self, SupplementalGroupsPolicy, security_profile::ProfileType};
use pod::{GroupsPolicy, SeccompChoice, Security, UserChoice};

use super::{capability::capabilities, field, namespace};
use crate::Failure;

const AT: &str = "config.linux.security_context";

/// Validates the security context of a container. If the message is missing, the default paths are masked and
/// read-only. If it is present, its lists apply as they are, so empty lists mask nothing (`procMount: Unmasked`).
pub(super) fn security(message: Option<v1::LinuxContainerSecurityContext>) -> Result<Security, Failure> {
    let missing = message.is_none();
    let message = message.unwrap_or_default();
    let user = user(&message)?;
    let groups = format!("{AT}.supplemental_groups");
    let supplemental_groups =
        message.supplemental_groups.iter().map(|id| field::id(&groups, *id)).collect::<Result<_, _>>()?;
    let groups_policy =
        match field::known(&format!("{AT}.supplemental_groups_policy"), message.supplemental_groups_policy)? {
            SupplementalGroupsPolicy::Merge => GroupsPolicy::Merge,
            SupplementalGroupsPolicy::Strict => GroupsPolicy::Strict,
        };
    let seccomp = seccomp(&message)?;
    let apparmor = apparmor(&message)?;
    let namespaces =
        namespace::of_container(&format!("{AT}.namespace_options"), &message.namespace_options.unwrap_or_default())?;
    if message.privileged && namespaces.user.is_some() {
        return Err(Failure::invalid(&format!("{AT}.privileged"), "cannot be combined with a user namespace"));
    }
    let requested = message.capabilities.unwrap_or_default();
    Ok(Security {
        user,
        supplemental_groups,
        groups_policy,
        privileged: message.privileged,
        readonly_rootfs: message.readonly_rootfs,
        no_new_privileges: message.no_new_privs,
        add_capabilities: capabilities(&format!("{AT}.capabilities.add_capabilities"), &requested.add_capabilities)?,
        drop_capabilities: capabilities(&format!("{AT}.capabilities.drop_capabilities"), &requested.drop_capabilities)?,
        add_ambient_capabilities: capabilities(
            &format!("{AT}.capabilities.add_ambient_capabilities"),
            &requested.add_ambient_capabilities,
        )?,
        seccomp,
        apparmor,
        selinux_label: selinux(message.selinux_options)?,
        masked_paths: paths("masked_paths", message.masked_paths, missing)?,
        readonly_paths: paths("readonly_paths", message.readonly_paths, missing)?,
        pid: namespaces.pid,
        target: namespaces.target,
        network: namespaces.network,
        ipc: namespaces.ipc,
        user_namespace: namespaces.user,
    })
}

fn user(message: &v1::LinuxContainerSecurityContext) -> Result<UserChoice, Failure> {
    let uid = message.run_as_user.map(|id| field::id(&format!("{AT}.run_as_user"), id.value)).transpose()?;
    let gid = message.run_as_group.map(|id| field::id(&format!("{AT}.run_as_group"), id.value)).transpose()?;
    match (uid, message.run_as_username.as_str(), gid) {
        (Some(uid), "", gid) => Ok(UserChoice::Uid { uid, gid }),
        (Some(_), name, _) => Err(Failure::invalid(
            &format!("{AT}.run_as_username"),
            format_args!("{name:?} conflicts with run_as_user; set only one of them"),
        )),
        (None, "", None) => Ok(UserChoice::Image),
        (None, "", Some(_)) => {
            Err(Failure::invalid(&format!("{AT}.run_as_group"), "requires run_as_user or run_as_username"))
        }
        (None, name, gid) => {
            let name = field::name(&format!("{AT}.run_as_username"), name)?;
            Ok(UserChoice::Name(gid.map_or_else(|| name.clone(), |gid| format!("{name}:{gid}"))))
        }
    }
}

/// Returns the seccomp profile: from the field, else from the deprecated field, else unconfined, as the CRI specifies
/// (kubelet sets `RuntimeDefault` explicitly). A privileged container is always unconfined.
fn seccomp(message: &v1::LinuxContainerSecurityContext) -> Result<SeccompChoice, Failure> {
    if message.privileged {
        return Ok(SeccompChoice::Unconfined);
    }
    if let Some(profile) = &message.seccomp {
        let at = format!("{AT}.seccomp");
        return Ok(match field::known(&format!("{at}.profile_type"), profile.profile_type)? {
            ProfileType::Localhost => localhost(&format!("{at}.localhost_ref"), &profile.localhost_ref)?,
            other => {
                no_reference(&at, profile)?;
                match other {
                    ProfileType::Unconfined => SeccompChoice::Unconfined,
                    _ => SeccompChoice::RuntimeDefault,
                }
            }
        });
    }
    #[allow(deprecated)]
    let path = message.seccomp_profile_path.as_str();
    match path {
        "" | "unconfined" => Ok(SeccompChoice::Unconfined),
        "runtime/default" | "docker/default" => Ok(SeccompChoice::RuntimeDefault),
        other => match other.strip_prefix("localhost/") {
            Some(path) => localhost(&format!("{AT}.seccomp_profile_path"), path),
            None => Err(Failure::invalid(
                &format!("{AT}.seccomp_profile_path"),
                format_args!("{other:?} is not runtime/default, unconfined or localhost/<path>"),
            )),
        },
    }
}

/// Rejects a `localhost_ref`, which must only be set for `Localhost`.
fn no_reference(at: &str, profile: &v1::SecurityProfile) -> Result<(), Failure> {
    match profile.localhost_ref.is_empty() {
        true => Ok(()),
        false => Err(Failure::invalid(&format!("{at}.localhost_ref"), "must only be set for profile_type Localhost")),
    }
}

fn localhost(at: &str, path: &str) -> Result<SeccompChoice, Failure> {
    field::absolute_path(at, path).map(SeccompChoice::Localhost)
}

/// Returns the AppArmor profile: `None` for the runtime's default, else `unconfined` or the name of a loaded profile.
fn apparmor(message: &v1::LinuxContainerSecurityContext) -> Result<Option<String>, Failure> {
    if message.privileged {
        return Ok(Some("unconfined".to_owned()));
    }
    if let Some(profile) = &message.apparmor {
        let at = format!("{AT}.apparmor");
        return match field::known(&format!("{at}.profile_type"), profile.profile_type)? {
            ProfileType::RuntimeDefault => no_reference(&at, profile).map(|()| None),
            ProfileType::Unconfined => no_reference(&at, profile).map(|()| Some("unconfined".to_owned())),
            ProfileType::Localhost => {
                let name = profile.localhost_ref.strip_prefix("localhost/").unwrap_or(&profile.localhost_ref);
                field::word(&format!("{at}.localhost_ref"), name).map(Some)
            }
        };
    }
    #[allow(deprecated)]
    let name = message.apparmor_profile.as_str();
    match name {
        "" | "runtime/default" => Ok(None),
        "unconfined" => Ok(Some(name.to_owned())),
        other => match other.strip_prefix("localhost/") {
            Some(name) => field::word(&format!("{AT}.apparmor_profile"), name).map(Some),
            None => Err(Failure::invalid(
                &format!("{AT}.apparmor_profile"),
                format_args!("{other:?} is not runtime/default, unconfined or localhost/<profile>"),
            )),
        },
    }
}

/// Returns the SELinux label `user:role:type:level`; missing parts get the defaults of containers.
fn selinux(options: Option<v1::SeLinuxOption>) -> Result<Option<String>, Failure> {
    let Some(options) = options.filter(|o| *o != v1::SeLinuxOption::default()) else { return Ok(None) };
    let at = format!("{AT}.selinux_options");
    let part = |name: &str, value: &str, default: &str| match value {
        "" => Ok(default.to_owned()),
        value => field::word(&format!("{at}.{name}"), value),
    };
    let user = part("user", &options.user, "system_u")?;
    let role = part("role", &options.role, "system_r")?;
    let kind = part("type", &options.r#type, "container_t")?;
    let level = part("level", &options.level, "s0")?;
    Ok(Some(format!("{user}:{role}:{kind}:{level}")))
}

fn paths(name: &str, values: Vec<String>, missing: bool) -> Result<Option<Vec<String>>, Failure> {
    for (index, value) in values.iter().enumerate() {
        field::absolute_path(&format!("{AT}.{name}[{index}]"), value)?;
    }
    Ok((!missing).then_some(values))
}
