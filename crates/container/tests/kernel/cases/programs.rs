//! The program of a container: PATH lookup and execve.

use container::{Error, ErrorKind};

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![found_in_path, not_found, not_executable, not_a_program];

fn run_error(node: &Node, args: &[&str]) -> Error {
    node.run(bundle::spec(args), node.inputs()).expect_err("does not run")
}

fn found_in_path(node: &Node) {
    assert_eq!(node.run(bundle::spec(&["echo", "x"]), node.inputs()).expect("runs").stdout, "x");
    let mut spec = bundle::spec(&["echo", "x"]);
    spec.process.as_mut().expect("process").env.clear();
    assert_eq!(node.run(spec, node.inputs()).expect("runs").stdout, "x");
}

fn not_found(node: &Node) {
    let error = run_error(node, &["nginxx"]);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.message(), "exec \"nginxx\": executable file not found in $PATH (/usr/bin:/bin)");
    let error = run_error(node, &["/bin/nginxx"]);
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::NotFound, "exec \"/bin/nginxx\": no such file or directory")
    );
}

fn not_executable(node: &Node) {
    let error = run_error(node, &["/etc/passwd"]);
    assert_eq!(error.kind(), ErrorKind::NotExecutable);
    assert!(error.message().starts_with("exec \"/etc/passwd\": permission denied"), "{error}");
    assert!(run_error(node, &["/etc"]).message().ends_with("it is a directory"));
}

fn not_a_program(node: &Node) {
    let image = node.image();
    for (name, content, kind, expected) in [
        ("data", "no program\n", ErrorKind::NotExecutable, "exec format error"),
        ("script", "#!/no/interpreter\n", ErrorKind::NotFound, "interpreter or dynamic loader is missing"),
    ] {
        std::fs::write(image.join("bin").join(name), content).expect("file");
        crate::node::set_mode(&image.join("bin").join(name), 0o755);
        let error = node.run(bundle::spec(&[name]), node.inputs_of(&image)).expect_err("does not run");
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(expected), "{error}");
    }
}
