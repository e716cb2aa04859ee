//! CNI configurations: built-in chains and plugin programs.

mod node;

use std::{collections::HashSet, fs, path::Path, time::Duration};

use network::{Network, PodRef};
use node::{
    attach, config, on_a_node, open, outside,
    plugins::{RESULT, json, list, plugin, recorded},
    pod_links, request, request_from, serve, tcp, try_attach,
};
use testbed::shell;

fn limited() -> Network {
    Network::open_with_limit(config(), Duration::from_millis(500)).unwrap()
}

const BRIDGE: &str = r#"{"type": "bridge", "bridge": "cni5", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
    "mtu": 1400, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.50"}]]}}"#;
const PORTMAP: &str = r#"{"type": "portmap", "capabilities": {"portMappings": true}}"#;

#[test]
fn a_built_in_chain_needs_no_program() {
    on_a_node(|| async {
        list("10-bridge.conflist", "0.4.0", &format!("{BRIDGE}, {PORTMAP}"));
        let (network, outside) = (open(config()), outside());
        network.ready().unwrap();
        assert_eq!(network.describe(), "cni: 10-bridge.conflist");
        let pod = attach(&network, 1, &[tcp(8080, 80)]).await;
        assert_eq!(pod.ip().to_string(), "10.5.0.50");
        assert_eq!(
            (&pod.attachment.raw["cniVersion"], &pod.attachment.raw["ips"][0]["version"]),
            (&"0.4.0".into(), &"4".into())
        );
        assert!(shell("ip -n pod-1 link show eth0").contains("mtu 1400"));
        serve(&pod.ns, "0.0.0.0:80");
        assert!(request("127.0.0.1:8080").is_ok() && request_from(&pod.ns, "10.5.0.1:8080").is_ok());
        assert_eq!(request_from(&outside, "192.0.2.1:8080").unwrap(), "192.0.2.2");
        // After a change of the configuration, the pod is detached according to the one it was attached with.
        fs::remove_file("/run/net.d/10-bridge.conflist").unwrap();
        assert_eq!(attach(&network, 2, &[]).await.ip().to_string(), "10.85.0.2");
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_eq!((pod_links().len(), node::files("leases/test").len()), (1, 0));
    });
}

#[test]
fn programs_are_run_as_the_specification_requires() {
    on_a_node(|| async {
        plugin("first", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        plugin(
            "second",
            "[ $CNI_COMMAND != ADD ] || sed 's/.*\"prevResult\"://; s/,\"type\".*//; s/}$//' /run/calls/second.ADD.json >/dev/null; \
            [ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.1.0\",\"ips\":[{\"address\":\"10.9.0.8/24\"}]}'",
        );
        let caps = r#""capabilities": {"portMappings": true, "bandwidth": true}"#;
        list("10-x.conflist", "1.1.0", &format!(r#"{{"type": "first", "extra": 5}}, {{"type": "second", {caps}}}"#));
        let network = open(config());
        network.ready().unwrap();
        let (ns, path) = (netns::Namespace::create().unwrap(), node::ns_path(1));
        let pins = netns::PinDir::open("/run/netns/.store".as_ref(), "/run/netns".as_ref()).unwrap();
        pins.pin("pod-1", &ns).unwrap();
        let bandwidth = serde_json::json!({"ingressRate": 1000});
        let args = [("bandwidth".to_owned(), bandwidth.clone()), ("cgroupPath".to_owned(), "/x".into())].into();
        let pod = PodRef { uid: "u-1".into(), capability_args: args, ..node::pod_ref(1) };
        let attachment = network.attach(&pod, &ns, &path, &[tcp(8080, 80)]).await.unwrap();
        assert_eq!(attachment.ips[0].to_string(), "10.9.0.8");
        let env = recorded("first.ADD.env");
        for line in [
            "CNI_COMMAND=ADD".to_owned(),
            format!("CNI_CONTAINERID={}", pod.sandbox),
            "CNI_IFNAME=eth0".into(),
            "CNI_NETNS=/run/netns/pod-1".into(),
            "CNI_PATH=/run/bin".into(),
        ] {
            assert!(env.lines().any(|l| l == line), "{line} in {env}");
        }
        assert!(
            env.contains("K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=")
                && env.contains("K8S_POD_UID=u-1")
        );
        let first = json("first.ADD.json");
        assert_eq!(
            (&first["name"], &first["cniVersion"], &first["extra"]),
            (&"test".into(), &"1.1.0".into(), &5.into())
        );
        assert!(first.get("prevResult").is_none() && first.get("runtimeConfig").is_none());
        let second = json("second.ADD.json");
        assert_eq!(second["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
        assert_eq!(second["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(
            (&second["runtimeConfig"]["bandwidth"], second["runtimeConfig"].get("cgroupPath")),
            (&bandwidth, None)
        );
        network.check(&pod.sandbox).await.unwrap();
        network.reconcile(&HashSet::from([pod.sandbox.clone()])).await.unwrap();
        assert_eq!(json("first.GC.json")["cni.dev/valid-attachments"][0]["containerID"], pod.sandbox.as_str());
        // With another daemon and configuration, DEL uses the configuration and result of ADD, in reverse order.
        drop(network);
        fs::remove_file("/run/net.d/10-x.conflist").unwrap();
        pins.unpin("pod-1").unwrap();
        let network = open(config());
        network.detach(&pod.sandbox).await.unwrap();
        assert!(recorded("first.DEL.env").lines().any(|line| line == "CNI_NETNS="), "its namespace is gone");
        assert_eq!(json("first.DEL.json")["prevResult"]["ips"][0]["address"], "10.9.0.8/24");
        let order: Vec<String> = recorded("order").lines().map(str::to_owned).collect();
        assert_eq!(order[..4], ["first ADD", "second ADD", "first CHECK", "second CHECK"]);
        assert_eq!(order[order.len() - 2..], ["second DEL", "first DEL"]);
        assert!(node::files("attachments").is_empty());
    });
}

#[test]
fn a_chain_of_built_in_and_program_elements() {
    on_a_node(|| async {
        plugin(
            "meta",
            "[ $CNI_COMMAND != ADD ] || sed 's/.*\"prevResult\":\\({.*}\\),\"type\".*/\\1/' /run/calls/meta.ADD.json",
        );
        list("10.conflist", "1.0.0", &format!(r#"{BRIDGE}, {{"type": "meta"}}, {PORTMAP}"#));
        let network = open(config());
        let pod = attach(&network, 1, &[tcp(8080, 80)]).await;
        serve(&pod.ns, "0.0.0.0:80");
        assert!(request("127.0.0.1:8080").is_ok());
        assert_eq!(json("meta.ADD.json")["prevResult"]["ips"][0]["address"], "10.5.0.50/24");
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert!(recorded("order").ends_with("meta DEL\n"));
        node::assert_clean();
    });
}

#[test]
fn a_failing_program_is_reported_and_rolled_back() {
    on_a_node(|| async {
        let cases = [
            (
                r#"echo '{"code": 11, "msg": "try later", "details": "no \"quota\""}'; exit 1"#,
                "try later: no \"quota\" (code 11)",
            ),
            ("echo oops >&2; exit 3", "exit status: 3, without a CNI error; its output was oops"),
            ("printf 'gar\\033[2Jbage'", "its result is not JSON"),
            ("echo '[1]'", "its result is not an object"),
            ("echo '{\"ips\": [{\"address\": \"nonsense\"}]}'", "its result is not valid"),
            ("head -c 3000000 /dev/zero", "its output is longer than 1048576 bytes"),
            ("sleep 76543 & sleep 76543", "timed out after 0.5 s; killed it"),
        ];
        for (response, expected) in cases {
            plugin("bad", &format!("[ $CNI_COMMAND = ADD ] || exit 0\n{response}"));
            list("10.conflist", "1.0.0", &format!(r#"{BRIDGE}, {{"type": "bad"}}"#));
            let network = limited();
            let error = try_attach(&network, 1, &[]).await.err().unwrap().to_string();
            assert!(error.starts_with("CNI plugin bad ADD: ") && error.contains(expected), "{error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
            network.settle().await;
            assert!(recorded("order").ends_with("bad ADD\nbad DEL\n"), "{}", recorded("order"));
            node::assert_clean();
        }
        // A killed process exists until it is scheduled. No other test has a process with this sleep time.
        let killed = async {
            while shell("ps -eo args 2>/dev/null || true").contains("sleep 76543") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), killed).await.expect("its children are killed too");
    });
}

#[test]
fn a_failed_del_is_retried_by_the_reconciler() {
    on_a_node(|| async {
        plugin(
            "net",
            &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n[ $CNI_COMMAND != DEL ] || [ -e /run/del-succeeds ]"),
        );
        list("10.conflist", "1.0.0", r#"{"type": "net"}"#);
        let network = open(config());
        let pod = attach(&network, 1, &[]).await;
        assert_eq!(
            (pod.attachment.dns_servers.join(","), pod.attachment.dns_search.join(",")),
            ("10.9.0.1".into(), "a.b".into())
        );
        assert!(network.detach(&pod.id).await.is_err() && network.detach(&pod.id).await.is_err());
        assert_eq!(node::files("attachments").len(), 1);
        fs::write("/run/del-succeeds", "").unwrap();
        network.reconcile(&HashSet::from([pod.id.clone()])).await.unwrap();
        assert!(node::files("attachments").is_empty());
    });
}

#[test]
fn a_slow_plugin_does_not_delay_other_pods() {
    on_a_node(|| async {
        // Each plugin waits until all have started: they end only if they run at the same time.
        plugin(
            "meet",
            &format!(
                "[ $CNI_COMMAND = ADD ] || exit 0\ntouch /run/calls/started.$CNI_CONTAINERID\n\
            while [ $(ls /run/calls | grep -c started) -lt 6 ]; do sleep 0.01; done\n{RESULT}"
            ),
        );
        list("10.conflist", "1.0.0", r#"{"type": "meet"}"#);
        let network = open(config());
        let task = |number| {
            let network = network.clone();
            tokio::spawn(async move { attach(&network, number, &[]).await })
        };
        let tasks: Vec<_> = (1..=6).map(task).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Uses a plugin directory on a file system that does not respond: this process opens it as a FUSE server and never
/// replies.
#[test]
fn an_unresponsive_plugin_directory_blocks_no_task_of_the_daemon() {
    on_a_node(|| async {
        list("10.conflist", "1.0.0", r#"{"type": "absent"}"#);
        fs::create_dir_all("/run/bin").unwrap();
        let device = fs::File::options().read(true).write(true).open("/dev/fuse").expect("open /dev/fuse");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", std::os::fd::AsRawFd::as_raw_fd(&device));
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("none", "/run/bin", "fuse", rustix::mount::MountFlags::empty(), options.as_c_str())
            .expect("mount /run/bin");
        let network = limited();
        let began = std::time::Instant::now();
        // Closing the device wakes all processes that wait for the file system.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(10));
            drop(device);
        });
        // More than the runtime has worker threads.
        let tasks: Vec<_> = (1..=8)
            .map(|number| {
                let network = network.clone();
                tokio::spawn(async move { try_attach(&network, number, &[]).await.err() })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        network.cancel(&node::pod_ref(1).sandbox);
        for (task, reason) in
            tasks.into_iter().zip(["the pod is being stopped"].into_iter().chain(["not started within"; 7]))
        {
            let error = task.await.unwrap().expect("an error").to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    });
}

#[test]
fn cancelling_an_attachment_kills_its_plugin() {
    on_a_node(|| async {
        // One child stays in the plugin's process group, the other leaves it.
        plugin(
            "slow",
            "[ $CNI_COMMAND = ADD ] || exit 0\nsetsid sleep 1001 >/dev/null 2>&1 &\nsleep 1002 &\n\
            touch /run/calls/began\nsleep 1003",
        );
        list("10.conflist", "1.0.0", &format!(r#"{BRIDGE}, {{"type": "slow"}}"#));
        let network = open(config());
        let task = {
            let network = network.clone();
            tokio::spawn(async move { try_attach(&network, 1, &[]).await.err() })
        };
        let id = node::pod_ref(1).sandbox;
        node::eventually("the plugin runs", || Path::new("/run/calls/began").exists()).await;
        let calls = network.calls(&id);
        assert_eq!((calls[0].plugin.as_str(), calls[0].command.as_str(), calls[0].took), ("slow", "ADD", None));
        network.cancel(&id);
        let error = task.await.unwrap().expect("cancelled").to_string();
        assert!(error.contains("CNI plugin slow ADD: the pod is being stopped"), "{error}");
        network.settle().await;
        assert_eq!(recorded("order"), "slow ADD\nslow DEL\n");
        for command in ["sleep 1001", "sleep 1002", "sleep 1003"] {
            assert!(!shell("ps -eo args").lines().any(|line| line == command), "{command}");
        }
        node::assert_clean();
        assert_eq!(network.calls(&id), vec![]);
        // The same sandbox can be attached again.
        plugin("slow", "true");
        assert!(try_attach(&network, 1, &[]).await.is_err(), "its output is not a result");
    });
}

#[test]
fn a_pod_is_detached_without_a_plugin_that_was_uninstalled() {
    on_a_node(|| async {
        plugin("first", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        plugin("second", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        list("10.conflist", "1.0.0", r#"{"type": "first"}, {"type": "second"}"#);
        let limit = Duration::from_secs(2);
        let network = Network::open_with_limit(config(), limit).unwrap();
        let id = attach(&network, 1, &[]).await.id;
        fs::remove_file("/run/bin/second").unwrap();
        let error = network.detach(&id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin second DEL: not found in /run/bin"), "{error}");
        assert!(recorded("order").ends_with("\nfirst DEL\n"), "a missing program does not stop the others");
        // A program that cannot be looked for is not missing.
        std::os::unix::fs::symlink("second", "/run/bin/second").unwrap();
        tokio::time::sleep(limit).await;
        let error = network.detach(&id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin second DEL: look for /run/bin/second"), "{error}");
        fs::remove_file("/run/bin/second").unwrap();
        network.detach(&id).await.unwrap();
        assert_eq!(recorded("order").matches("first DEL").count(), 1, "what succeeded is not repeated");
        network.settle().await;
        node::assert_clean();

        plugin("second", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        let id = attach(&network, 2, &[]).await.id;
        fs::remove_file("/run/bin/second").unwrap();
        network.skip_missing_plugins();
        network.detach(&id).await.unwrap();
        network.settle().await;
        node::assert_clean();
    });
}

#[test]
fn a_pod_is_detached_without_a_plugin_that_does_not_know_the_version() {
    on_a_node(|| async {
        let refuse = r#"echo '{"cniVersion": "1.0.0", "code": 1, "msg": "incompatible CNI versions"}'; exit 1"#;
        plugin(
            "old",
            &format!(
                "case $CNI_COMMAND in ADD) {RESULT};; DEL) {refuse};;
            VERSION) echo '{{\"cniVersion\": \"0.4.0\", \"supportedVersions\": [\"0.3.1\", \"0.4.0\"]}}';; esac"
            ),
        );
        list("10.conflist", "1.0.0", r#"{"type": "old"}"#);
        let limit = Duration::from_secs(1);
        let network = Network::open_with_limit(config(), limit).unwrap();
        let id = attach(&network, 1, &[]).await.id;
        let error = network.detach(&id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin old DEL: incompatible CNI versions"), "{error}");
        tokio::time::sleep(limit).await;
        network.detach(&id).await.unwrap();
        network.settle().await;
        node::assert_clean();
    });
}

#[test]
fn ready_names_the_cause_and_follows_the_directory() {
    on_a_node(|| async {
        let network = open(config());
        network.ready().unwrap();
        fs::create_dir_all("/run/net.d").unwrap();
        fs::write("/run/net.d/10-x.conflist", "{\n  \"name\": oops\n}").unwrap();
        let error = network.ready().unwrap_err().to_string();
        assert!(error.contains("/run/net.d/10-x.conflist: not JSON") && error.contains("line 2"), "{error}");
        assert!(try_attach(&network, 1, &[]).await.err().unwrap().to_string().contains("not JSON"));
        list("10-x.conflist", "1.1.0", r#"{"type": "absent"}"#);
        let error = network.ready().unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("not found in /run/bin"), "{error}");
        plugin("absent", "[ $CNI_COMMAND != STATUS ] || { echo '{\"code\": 50, \"msg\": \"no agent\"}'; exit 1; }");
        network.reconcile(&HashSet::new()).await.unwrap();
        assert!(network.ready().unwrap_err().to_string().contains("no agent (code 50)"));
        // The failure is that of another configuration, and 1.0.0 has no STATUS that could clear it.
        list("10-x.conflist", "1.0.0", r#"{"type": "absent"}"#);
        network.ready().unwrap();
        network.reconcile(&HashSet::new()).await.unwrap();
        list("10-x.conflist", "1.1.0", r#"{"type": "absent"}"#);
        network.ready().unwrap();
        network.reconcile(&HashSet::new()).await.unwrap();
        assert!(network.ready().unwrap_err().to_string().contains("no agent (code 50)"));
        plugin("absent", "true");
        network.reconcile(&HashSet::new()).await.unwrap();
        network.ready().unwrap();
        list("05-y.conflist", "9.9.9", r#"{"type": "absent"}"#);
        assert!(network.ready().unwrap_err().to_string().contains("cniVersion 9.9.9 is not supported"));
        fs::remove_dir_all("/run/net.d").unwrap();
        network.ready().unwrap();
    });
}

#[test]
fn processes_of_other_cgroups_are_neither_read_nor_killed() {
    on_a_node(|| async {
        plugin("slow", "[ $CNI_COMMAND = ADD ] || exit 0\ntouch /run/calls/began\nsleep 1003");
        list("10.conflist", "1.0.0", r#"{"type": "slow"}"#);
        let id = node::pod_ref(1).sandbox;
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let root = root.into_iter().find(|root| root.join("cgroup.procs").exists()).expect("a cgroup v2 tree");
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("random");
        let group = root.join(format!("pinion-test-cni-{}", unique.trim()));
        fs::create_dir(&group).expect("a cgroup");
        // Like a malicious container: it has the plugin's variable in its environment, whose reading it could delay.
        let mut other =
            std::process::Command::new("sleep").arg("1004").env("CNI_CONTAINERID", &id).spawn().expect("sleep");
        fs::write(group.join("cgroup.procs"), other.id().to_string()).expect("join");
        let network = open(config());
        let task = {
            let network = network.clone();
            tokio::spawn(async move { try_attach(&network, 1, &[]).await.err() })
        };
        node::eventually("the plugin runs", || Path::new("/run/calls/began").exists()).await;
        network.cancel(&id);
        let error = task.await.unwrap().expect("cancelled").to_string();
        assert!(error.contains("the pod is being stopped"), "{error}");
        network.settle().await;
        assert!(!shell("ps -eo args").lines().any(|line| line == "sleep 1003"), "the plugin must be killed");
        assert!(other.try_wait().expect("a child").is_none(), "the container's process must not be killed");
        other.kill().and_then(|()| other.wait().map(drop)).expect("kill and reap");
        node::eventually("the cgroup is removed", || fs::remove_dir(&group).is_ok()).await;
    });
}
