//! `DEL`, `CHECK`, `GC` and `STATUS`, and how the CNI directory is read.

mod node;

use std::{collections::HashSet, fs, time::Duration};

use network::Network;
use node::{
    attach, attach_pod, config, files, on_a_node, open,
    plugins::{RESULT, json, list, named_list, order, plugin, recorded},
    pod_ref, pod_with, try_attach,
};
use serde_json::json;
use testbed::shell;

#[test]
fn a_failing_del_does_not_stop_the_other_plugins() {
    on_a_node(|| async {
        for name in ["one", "two", "three"] {
            let del = format!("[ $CNI_COMMAND != DEL ] || [ ! -e /run/fail.{name} ]");
            plugin(name, &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n{del}"));
        }
        list("10.conflist", "1.0.0", r#"{"type": "one"}, {"type": "two"}, {"type": "three"}"#);
        let network = open(config());
        let pod = attach(&network, 1, &[]).await;
        fs::write("/run/fail.one", "").unwrap();
        fs::write("/run/fail.three", "").unwrap();
        let error = network.detach(&pod.id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin three DEL") && error.contains("; CNI plugin one DEL"), "{error}");
        assert_eq!(order()[3..], ["three DEL", "two DEL", "one DEL"]);
        // Another daemon retries only what failed, in the same order, with the recorded result.
        drop(network);
        fs::remove_file("/run/fail.three").unwrap();
        let network = open(config());
        network.detach(&pod.id).await.unwrap_err();
        assert_eq!(order()[6..], ["three DEL", "one DEL"]);
        fs::remove_file("/run/fail.one").unwrap();
        network.reconcile(&HashSet::from([pod.id.clone()])).await.unwrap();
        assert_eq!(order()[8..], ["one DEL"]);
        assert_eq!(json("one.DEL.json")["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
        assert!(files("attachments").is_empty());
        network.detach(&pod.id).await.unwrap();
        assert_eq!(order().len(), 9, "DEL is not called for a pod that is detached");
    });
}

#[test]
fn the_address_is_kept_until_all_plugins_have_removed_their_rules() {
    on_a_node(|| async {
        plugin(
            "rules",
            "[ $CNI_COMMAND != ADD ] || sed 's/.*\"prevResult\":\\({.*}\\),\"type\".*/\\1/' /run/calls/rules.ADD.json\n\
            [ $CNI_COMMAND != DEL ] || [ -e /run/del-succeeds ]",
        );
        let bridge = r#"{"type": "bridge", "bridge": "br-a", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#;
        list("10.conflist", "1.0.0", &format!(r#"{bridge}, {{"type": "rules"}}"#));
        let network = open(config());
        let pod = attach(&network, 1, &[]).await;
        network.detach(&pod.id).await.unwrap_err();
        network.settle().await;
        assert_eq!(files("leases").len(), 1);
        fs::write("/run/del-succeeds", "").unwrap();
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        node::assert_clean();
    });
}

#[test]
fn check_reports_a_problem_and_touches_nothing() {
    on_a_node(|| async {
        let check = r#"[ $CNI_COMMAND != CHECK ] || [ ! -e /run/broken.$CNI_IFNAME ] || { echo '{"code": 100, "msg": "no route"}'; exit 1; }"#;
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n{check}"));
        named_list("aa", "0.4.0", r#"{"type": "net"}"#);
        named_list("second", "1.0.0", r#"{"type": "net"}"#);
        named_list("old", "0.3.1", r#"{"type": "net"}"#);
        fs::write(
            "/run/net.d/60.conflist",
            r#"{"cniVersion": "1.0.0", "name": "quiet", "disableCheck": true, "plugins": [{"type": "net"}]}"#,
        )
        .unwrap();
        let network = open(config());
        let pod = attach_pod(&network, 1, &pod_with(1, "second,old@o0,quiet@q0"), &[]).await.unwrap();
        // The check is done by a new daemon with the recorded result and configuration.
        drop(network);
        let network = open(config());
        network.check(&pod.id).await.unwrap();
        assert_eq!(order()[4..], ["net CHECK", "net CHECK"], "not of 0.3.1, and not with disableCheck");
        assert_eq!(json("net.CHECK.json")["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
        assert!(recorded("net.CHECK.env").contains("CNI_IFNAME=net1"));
        for interface in ["eth0", "net1", "o0", "q0"] {
            fs::write(format!("/run/broken.{interface}"), "").unwrap();
        }
        let error = network.check(&pod.id).await.unwrap_err().to_string();
        assert_eq!(error.matches("CNI plugin net CHECK: no route (code 100)").count(), 2, "{error}");
        assert_eq!(network.failed_check(&pod.id), Some(error));
        assert!(network.calls(&pod.id).iter().any(|call| call.command == "CHECK" && call.failure.contains("no route")));
        assert_eq!(files("attachments").len(), 4);
        fs::remove_file("/run/broken.eth0").unwrap();
        fs::remove_file("/run/broken.net1").unwrap();
        network.check(&pod.id).await.unwrap();
        assert_eq!(network.failed_check(&pod.id), None);
        network.check(&pod_ref(9).sandbox).await.unwrap();
        network.detach(&pod.id).await.unwrap();
        network.check(&pod.id).await.unwrap();
    });
}

#[test]
fn a_check_that_hangs_does_not_delay_the_removal_of_its_pod() {
    on_a_node(|| async {
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n[ $CNI_COMMAND != CHECK ] || sleep 1043"));
        list("10.conflist", "1.0.0", r#"{"type": "net"}"#);
        let network = open(config());
        let pod = attach(&network, 1, &[]).await;
        let checking = {
            let (network, id) = (network.clone(), pod.id.clone());
            tokio::spawn(async move { network.check(&id).await })
        };
        node::eventually("CHECK runs", || calls("CHECK") == 1).await;
        network.detach(&pod.id).await.unwrap();
        checking.await.unwrap().unwrap();
        assert_eq!(network.failed_check(&pod.id), None);
        assert!(!shell("ps -eo args").lines().any(|line| line == "sleep 1043"));
        assert_eq!(order(), ["net ADD", "net CHECK", "net DEL"]);
    });
}

fn calls(command: &str) -> usize {
    order().iter().filter(|call| call.ends_with(command)).count()
}

#[test]
fn gc_gets_the_attachments_of_its_network() {
    on_a_node(|| async {
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        plugin("side", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        plugin("kept", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        named_list("aa", "1.1.0", r#"{"type": "net"}"#);
        named_list("side", "1.1.0", r#"{"type": "side"}"#);
        named_list("old", "1.0.0", r#"{"type": "kept"}"#);
        fs::write(
            "/run/net.d/60.conflist",
            r#"{"cniVersion": "1.1.0", "name": "off", "disableGC": "true", "plugins": [{"type": "kept"}]}"#,
        )
        .unwrap();
        let network = open(config());
        let one = attach_pod(&network, 1, &pod_with(1, "side@s0,old,off"), &[]).await.unwrap();
        let two = attach(&network, 2, &[]).await;
        let living = HashSet::from([one.id.clone(), two.id.clone()]);
        network.reconcile(&living).await.unwrap();
        let attachment = |id: &str, interface: &str| json!({"containerID": id, "ifname": interface});
        let mut expected = vec![attachment(&one.id, "eth0"), attachment(&two.id, "eth0")];
        expected.sort_by_key(|one| one["containerID"].to_string());
        let valid = json("net.GC.json");
        assert_eq!(valid["cni.dev/valid-attachments"], json!(expected));
        assert_eq!(valid["cni.dev/attachments"], json!(expected), "the old name");
        assert_eq!(json("side.GC.json")["cni.dev/valid-attachments"], json!([attachment(&one.id, "s0")]));
        assert_eq!(recorded("kept.GC.json"), "", "neither version 1.0.0 nor disableGC has GC");
        assert!(!recorded("net.GC.env").contains("CNI_CONTAINERID"));
        // Nothing has changed since.
        network.reconcile(&living).await.unwrap();
        assert_eq!(calls("GC"), 2);
        // A damaged record counts as valid in all networks.
        network.detach(&two.id).await.unwrap();
        fs::write("/run/pinion/network/attachments/torn.json", "{").unwrap();
        let mut and_torn = living.clone();
        and_torn.insert("torn".into());
        network.reconcile(&and_torn).await.unwrap();
        let valid = json("net.GC.json")["cni.dev/valid-attachments"].clone();
        assert_eq!(valid.as_array().unwrap().len(), 2);
        assert!(valid.as_array().unwrap().contains(&attachment("torn", "eth0")), "{valid}");
        // At the start of a daemon, before any pod is attached.
        fs::remove_file("/run/calls/net.GC.json").unwrap();
        drop(network);
        let network = open(config());
        network.reconcile(&HashSet::new()).await.unwrap();
        assert_eq!(json("net.GC.json")["cni.dev/valid-attachments"], json!([]));
    });
}

#[test]
fn gc_and_add_exclude_each_other() {
    on_a_node(|| async {
        let add = format!("[ $CNI_COMMAND != ADD ] || {{ while [ -e /run/hold ]; do sleep 0.01; done; {RESULT}\n}}");
        let gc = "[ $CNI_COMMAND != GC ] || while [ -e /run/hold-gc ]; do sleep 0.01; done";
        plugin("net", &format!("{add}\n{gc}"));
        list("10.conflist", "1.1.0", r#"{"type": "net"}"#);
        let network = open(config());
        fs::write("/run/hold", "").unwrap();
        let attaching = {
            let network = network.clone();
            tokio::spawn(async move { try_attach(&network, 1, &[]).await.map(|pod| pod.id) })
        };
        node::eventually("ADD runs", || calls("ADD") == 1).await;
        network.reconcile(&HashSet::new()).await.unwrap();
        assert_eq!(calls("GC"), 0, "GC does not wait for a slow ADD, and other pods do not wait for it");
        fs::remove_file("/run/hold").unwrap();
        let first = attaching.await.unwrap().unwrap();
        fs::write("/run/hold-gc", "").unwrap();
        let collecting = {
            let network = network.clone();
            tokio::spawn(async move { network.reconcile(&HashSet::new()).await })
        };
        node::eventually("GC runs", || calls("GC") == 1).await;
        let attaching = {
            let network = network.clone();
            tokio::spawn(async move { try_attach(&network, 2, &[]).await.map(|pod| pod.id) })
        };
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(calls("ADD"), 1, "ADD waits for GC");
        assert_eq!(json("net.GC.json")["cni.dev/valid-attachments"][0]["containerID"], first.as_str());
        fs::remove_file("/run/hold-gc").unwrap();
        collecting.await.unwrap().unwrap();
        attaching.await.unwrap().unwrap();
    });
}

#[test]
fn a_gc_that_hangs_is_killed_and_left_alone_for_some_time() {
    on_a_node(|| async {
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n[ $CNI_COMMAND != GC ] || sleep 1023"));
        list("10.conflist", "1.1.0", r#"{"type": "net"}"#);
        let network = Network::open_with_limit(config(), Duration::from_millis(500)).unwrap();
        let error = network.reconcile(&HashSet::new()).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin net GC: timed out after 0.5 s"), "{error}");
        let killed = || !shell("ps -eo args").lines().any(|line| line == "sleep 1023");
        node::eventually("the plugin is killed", killed).await;
        let pod = attach(&network, 1, &[]).await;
        network.reconcile(&HashSet::from([pod.id.clone()])).await.unwrap();
        assert_eq!(calls("GC"), 1);
    });
}

#[test]
fn an_endless_output_ends_the_plugin_at_once() {
    on_a_node(|| async {
        for (output, expected) in
            [("cat /dev/zero", "its output is longer than 1048576 bytes"), ("cat /dev/zero >&2", "timed out")]
        {
            plugin("loud", &format!("[ $CNI_COMMAND = ADD ] || exit 0\nsleep 1033 &\n{output}"));
            list("10.conflist", "1.0.0", r#"{"type": "loud"}"#);
            let network = Network::open_with_limit(config(), Duration::from_secs(2)).unwrap();
            let began = std::time::Instant::now();
            let error = try_attach(&network, 1, &[]).await.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(expected == "timed out" || began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
            let killed = || !shell("ps -eo args").lines().any(|line| line == "sleep 1033");
            node::eventually("its child is killed", killed).await;
            network.settle().await;
            node::assert_clean();
        }
    });
}

#[test]
fn plugins_that_leave_children_or_die_do_not_delay_their_pod() {
    on_a_node(|| async {
        // The child keeps the plugin's output open. It stays, as the plugin has succeeded: it may be a daemon.
        plugin("parent", &format!("[ $CNI_COMMAND = ADD ] || exit 0\nsleep 1053 &\n{RESULT}"));
        plugin("dead", "[ $CNI_COMMAND = ADD ] || exit 0\nkill -9 $$");
        list("10.conflist", "1.0.0", r#"{"type": "parent"}"#);
        named_list("dead", "1.0.0", r#"{"type": "dead"}"#);
        let network = open(config());
        let began = std::time::Instant::now();
        let pod = attach_pod(&network, 1, &pod_with(1, "test"), &[]).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(pod.attachment.secondary[0].ips[0].to_string(), "10.9.0.7");
        network.detach(&pod.id).await.unwrap();
        let error = attach_pod(&network, 2, &pod_with(2, "dead"), &[]).await.err().unwrap().to_string();
        assert!(error.contains("CNI plugin dead ADD: signal: 9"), "{error}");
        network.settle().await;
        node::assert_clean();
        shell("for pid in $(ps -eo pid,args | awk '$2 == \"sleep\" && $3 == 1053 {print $1}'); do kill $pid; done");
    });
}

#[test]
fn plugins_are_loaded_from_the_directory_of_the_network() {
    on_a_node(|| async {
        for name in ["inline", "one", "two"] {
            plugin(name, &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        }
        fs::create_dir_all("/run/net.d/test").unwrap();
        fs::write("/run/net.d/test/20-two.conf", r#"{"type": "two", "capabilities": {"portMappings": true}}"#).unwrap();
        fs::write("/run/net.d/test/10-one.conf", r#"{"type": "one"}"#).unwrap();
        fs::write("/run/net.d/test/README", "not a configuration").unwrap();
        list("10.conflist", "1.1.0", r#"{"type": "inline"}"#);
        let network = open(config());
        let pod = try_attach(&network, 1, &[node::tcp(8080, 80)]).await.unwrap();
        assert_eq!(order(), ["inline ADD", "one ADD", "two ADD"]);
        assert_eq!(json("two.ADD.json")["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(
            (&json("two.ADD.json")["name"], &json("two.ADD.json")["cniVersion"]),
            (&json!("test"), &json!("1.1.0"))
        );
        // The directory is followed, and DEL runs what ADD ran.
        fs::remove_file("/run/net.d/test/10-one.conf").unwrap();
        attach(&network, 2, &[]).await;
        assert_eq!(order()[3..], ["inline ADD", "two ADD"]);
        network.detach(&pod.id).await.unwrap();
        assert_eq!(order()[5..], ["two DEL", "one DEL", "inline DEL"]);
        fs::write("/run/net.d/test/20-two.conf", "{").unwrap();
        let error = network.ready().unwrap_err().to_string();
        assert!(error.contains("cni config /run/net.d/test/20-two.conf: not JSON"), "{error}");
        // Only the list itself.
        let only = |plugins: &str| {
            let text = format!(r#"{{"cniVersion": "1.1.0", "name": "test", "loadOnlyInlinedPlugins": true{plugins}}}"#);
            fs::write("/run/net.d/10.conflist", text).unwrap();
        };
        only(r#", "plugins": [{"type": "inline"}]"#);
        network.ready().unwrap();
        only("");
        assert!(network.ready().unwrap_err().to_string().contains("loadOnlyInlinedPlugins requires"));
        // A list without inlined plugins.
        fs::write("/run/net.d/test/20-two.conf", r#"{"type": "two"}"#).unwrap();
        fs::write("/run/net.d/10.conflist", r#"{"cniVersion": "1.1.0", "name": "test"}"#).unwrap();
        network.ready().unwrap();
        let before = order().len();
        attach(&network, 3, &[]).await;
        assert_eq!(order()[before..], ["two ADD"]);
        fs::remove_dir_all("/run/net.d/test").unwrap();
        assert!(network.ready().unwrap_err().to_string().contains("list \"plugins\" is missing"));
    });
}

#[test]
fn the_newest_version_that_both_support_is_used() {
    on_a_node(|| async {
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        let cases = [
            (r#""cniVersion": "0.4.0""#, "0.4.0"),
            (r#""cniVersion": "0.4.0", "cniVersions": ["0.3.1", "1.0.0"]"#, "1.0.0"),
            (r#""cniVersions": ["1.1.0", "2.0.0", "0.4.0"]"#, "1.1.0"),
            (r#""cniVersion": "9.0.0", "cniVersions": ["1.0.0"]"#, "1.0.0"),
        ];
        fs::create_dir_all("/run/net.d").unwrap();
        for (number, (versions, expected)) in (1..).zip(cases) {
            fs::write(
                "/run/net.d/10.conflist",
                format!(r#"{{"name": "n", {versions}, "plugins": [{{"type": "net"}}]}}"#),
            )
            .unwrap();
            let network = open(config());
            attach(&network, number, &[]).await;
            assert_eq!(json("net.ADD.json")["cniVersion"], expected, "{versions}");
        }
    });
}

#[test]
fn a_replaced_configuration_is_used_and_a_broken_one_stops_new_pods() {
    on_a_node(|| async {
        for name in ["one", "two"] {
            plugin(name, &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        }
        list("10.conflist", "1.0.0", r#"{"type": "one"}"#);
        let network = open(config());
        let pod = attach(&network, 1, &[]).await;
        // Replaced by rename, with the same size.
        list("new", "1.0.0", r#"{"type": "two"}"#);
        fs::rename("/run/net.d/new", "/run/net.d/10.conflist").unwrap();
        attach(&network, 2, &[]).await;
        assert_eq!(order(), ["one ADD", "two ADD"]);
        // Half a file: no pod is attached to a network that was replaced.
        fs::write("/run/net.d/10.conflist", r#"{"cniVersion": "1.0.0", "name":"#).unwrap();
        assert!(network.ready().is_err());
        assert!(try_attach(&network, 3, &[]).await.is_err());
        network.detach(&pod.id).await.unwrap();
        assert_eq!(order()[2..], ["one DEL"], "pods are detached according to their records");
        // Deleted: the next file by name, then the built-in network.
        list("20.conflist", "1.0.0", r#"{"type": "two"}"#);
        fs::remove_file("/run/net.d/10.conflist").unwrap();
        attach(&network, 4, &[]).await;
        assert_eq!(order()[3..], ["two ADD"]);
        fs::remove_file("/run/net.d/20.conflist").unwrap();
        assert_eq!(attach(&network, 5, &[]).await.ip().to_string(), "10.85.0.2");
    });
}
