use clap::Parser;
use cri_proto::v1;

use super::*;
use crate::arguments::{Arguments, Command};

fn args(line: &str) -> Args {
    match Arguments::try_parse_from(["pinion", "run"].into_iter().chain(line.split(' '))).expect("valid").command {
        Command::Run(args) => *args,
        other => panic!("not run: {other:?}"),
    }
}

fn container(line: &str) -> v1::ContainerConfig {
    let args = args(line);
    Messages::new(&args).expect("valid").container(&args, "web", "sha256:1".to_owned())
}

#[test]
fn options_after_the_image_are_arguments_of_its_program() {
    let config = container("--rm busybox ls -l --rm");
    assert_eq!(config.args, ["ls", "-l", "--rm"]);
    assert!(config.command.is_empty());
    let config = container("--entrypoint /bin/sh busybox -c true");
    assert_eq!((config.command, config.args), (vec!["/bin/sh".to_owned()], vec!["-c".to_owned(), "true".to_owned()]));
}

#[test]
fn options_after_the_image_are_not_parsed() {
    for line in ["busybox -h localhost", "busybox -l -u 0 -d -p 80:80 -v /:/x --name --json", "busybox -- -x"] {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let parsed = args(line);
        assert_eq!(
            (parsed.image(), parsed.command()),
            ("busybox", &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..])
        );
        assert!(!parsed.detach && parsed.publish.is_empty() && parsed.user.is_none() && parsed.name.is_none());
    }
    let split = args("-d -p 80:80 busybox httpd -p 80");
    assert_eq!((split.detach, split.publish.len(), split.command().len()), (true, 1, 3));
}

#[test]
fn an_empty_entrypoint_runs_the_command_itself() {
    let config = container("--entrypoint= busybox ls -l");
    assert_eq!((config.command, config.args), (vec!["ls".to_owned()], vec!["-l".to_owned()]));
    let error = Messages::new(&args("--entrypoint= busybox")).err().expect("nothing to run");
    assert!(error.contains("give a command"), "{error}");
}

#[test]
fn annotations_request_the_cleanup() {
    let is_set = |line: &str, name: &str| container(line).annotations.contains_key(name);
    assert!(is_set("--rm x", annotation::REMOVE_ENDED) && is_set("-d --rm x", annotation::REMOVE_ENDED));
    assert!(is_set("x", annotation::RELEASE_ENDED) && !is_set("--rm x", annotation::RELEASE_ENDED));
    assert!(!is_set("--pod p x", annotation::RELEASE_ENDED));
}

#[test]
fn limits_are_in_the_units_of_the_kernel() {
    let resources = container("--memory 64m --cpus 0.5 busybox").linux.and_then(|l| l.resources).expect("set");
    assert_eq!(
        (resources.memory_limit_in_bytes, resources.cpu_quota, resources.cpu_period),
        (64 << 20, 50_000, 100_000)
    );
}

#[test]
fn users_are_names_or_ids() {
    let security = |line: &str| container(line).linux.and_then(|l| l.security_context).expect("set");
    let ids = security("-u 7:8 x");
    assert_eq!((ids.run_as_user.map(|v| v.value), ids.run_as_group.map(|v| v.value)), (Some(7), Some(8)));
    assert_eq!(security("-u www:www x").run_as_username, "www:www");
}

#[test]
fn paths_of_the_host_are_masked_unless_privileged() {
    let security = |line: &str| container(line).linux.and_then(|l| l.security_context).expect("set");
    assert!(security("x").masked_paths.contains(&"/proc/kcore".to_owned()));
    assert!(security("--privileged x").masked_paths.is_empty() && security("--privileged x").privileged);
}

#[test]
fn ports_are_mapped_by_the_pod_and_listed_on_the_container() {
    let args = args("-p 8080:80 -p 53:53/udp x");
    let messages = Messages::new(&args).expect("valid");
    let ports: Vec<_> =
        messages.pod(&args, "web", String::new()).port_mappings.iter().map(|p| (p.host_port, p.protocol())).collect();
    assert_eq!(ports, [(8080, v1::Protocol::Tcp), (53, v1::Protocol::Udp)]);
    assert_eq!(container("-p 8080:80 -p 53:53/udp x").annotations[PORTS], "8080->80/tcp, 53->53/udp");
}

#[test]
fn names_are_generated_from_images() {
    let name = random_name("registry.example:5000/team/busy_box:1@sha256:00").expect("random");
    assert!(name.starts_with("busybox-") && name.len() == "busybox-".len() + 6, "{name}");
    assert_eq!(hostname("a_b."), "a-b");
}

#[test]
fn signals_have_cri_values() {
    assert_eq!(
        [signal(15), signal(34), signal(37), signal(63), signal(64)].map(|s| s.as_str_name()),
        ["SIGNAL_SIGTERM", "SIGNAL_SIGRTMIN", "SIGNAL_SIGRTMINPLUS3", "SIGNAL_SIGRTMAXMINUS1", "SIGNAL_SIGRTMAX"]
    );
}
