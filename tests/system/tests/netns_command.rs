//! `pinion netns`: namespaces of pods, of people and of other programs.

use system_tests::{Node, PodSpec};

#[test]
fn namespaces_are_listed_pinned_entered_and_deleted() {
    let node = Node::start();
    let pod = node.run_pod(&PodSpec::named(&node, "web"));
    node.run("ip", &["netns", "add", "by-ip"]).ok();
    assert_eq!(node.pinion(&["netns", "pin", "mine"]).ok(), "/run/netns/mine");
    let list = node.pinion(&["--json", "netns", "ls"]).json();
    let owners: Vec<(&str, &str)> = (list.as_array().expect("a list").iter())
        .map(|pin| (pin["name"].as_str().expect("a name"), pin["owner"].as_str().expect("an owner")))
        .collect();
    let mut expected = vec![(pod.as_str(), "pod"), ("by-ip", "other"), ("mine", "pinned")];
    expected.sort_unstable();
    assert_eq!(owners, expected);
    let table = node.pinion(&["netns", "ls"]).ok();
    assert!(table.starts_with("NAME") && table.lines().count() == 4, "{table}");

    let details = node.pinion(&["netns", "inspect", &pod]).json();
    let eth0 = details[0]["links"].as_array().expect("links").iter().find(|link| link["name"] == "eth0");
    let address = eth0.expect("the pod's link")["addresses"][0].as_str().expect("an address").to_owned();
    assert!(address.starts_with("10."), "{details}");
    assert_eq!(details[0]["routes"][0]["link"], "eth0", "{details}");
    assert!(list.to_string().contains(&address), "{list}");

    // The namespace of the pod, by another name; it lives on after the pod.
    node.pinion(&["netns", "pin", "copy", "--path", &format!("/run/netns/{pod}")]).ok();
    let inside = node.pinion(&["netns", "exec", "copy", "ip", "-brief", "address", "show", "eth0"]).ok();
    assert!(inside.contains(&address), "{inside}");
    let failed = node.pinion(&["netns", "exec", "copy", "sh", "-c", "exit 7"]);
    assert_eq!(failed.code, Some(7), "{failed:?}");
    let missing = node.pinion(&["netns", "exec", "copy", "/no/such"]);
    assert_eq!(missing.code, Some(127), "{missing:?}");

    // The same name in another directory is another pin.
    let elsewhere = ["netns", "--directory", "/run/elsewhere"];
    node.pinion(&[&elsewhere[..], &["pin", "mine"]].concat()).ok();
    node.pinion(&[&elsewhere[..], &["delete", "mine"]].concat()).ok();
    node.pinion(&["netns", "exec", "mine", "true"]).ok();
    // Only namespaces are opened: a FIFO would wait for a writer, or end its wait.
    node.run("mkfifo", &["/run/elsewhere/fifo"]).ok();
    assert!(!node.pinion(&[&elsewhere[..], &["ls"]].concat()).ok().contains("fifo"));
    let refused = node.pinion(&[&elsewhere[..], &["inspect", "fifo"]].concat());
    assert!(refused.code == Some(1) && refused.stderr.contains("not a network namespace"), "{refused:?}");

    for (name, hint) in [(pod.as_str(), "belongs to a pod"), ("by-ip", "ip netns delete"), ("none", "is not pinned")] {
        let refused = node.pinion(&["netns", "delete", name]);
        assert!(refused.code == Some(1) && refused.stderr.contains(hint), "{refused:?}");
    }
    for name in ["../netns/mine", ".hidden", ""] {
        assert_ne!(node.pinion(&["netns", "inspect", name]).code, Some(0), "{name:?}");
    }
    node.pinion(&["netns", "delete", "mine", "copy"]).ok();
    node.run("ip", &["netns", "delete", "by-ip"]).ok();
    assert_eq!(node.pinion(&["--json", "netns", "ls"]).json().as_array().map(Vec::len), Some(1));
    node.remove_all_pods();
    node.end();
}
