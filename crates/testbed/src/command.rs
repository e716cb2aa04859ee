use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs a program, which must succeed, and returns its output without spaces at the end.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> String {
    output(Command::new(program).args(arguments)).trim_end().to_owned()
}

/// Runs a shell script, which must succeed, and returns its output.
#[track_caller]
pub fn shell(script: &str) -> String {
    output(Command::new("sh").args(["-c", script]))
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|cause| panic!("{command:?}: {cause}; scripts/setup test installs it"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("the output is text")
}

/// Returns the path of a program under test, as `scripts/build` made it in the directory `PINION_BIN`.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let directory = env::var_os("PINION_BIN");
    let directory = directory.expect("PINION_BIN names the directory of the programs under test: run `make test`");
    let path = PathBuf::from(directory).join(name);
    assert!(path.is_file(), "{} does not exist: run `make test`", path.display());
    path
}

/// Returns the path of a file of this checkout.
pub fn checkout(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two levels below the root");
    root.join(path)
}

/// Makes the demonstration image in a directory: `image.tar`, and `layout` for a registry.
#[track_caller]
pub fn make_image(directory: &Path, name: &str) {
    make_image_with(directory, name, &[]);
}

/// Like [`make_image`], with variables that change the image (`scripts/make-image` lists them).
#[track_caller]
pub fn make_image_with(directory: &Path, name: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(checkout("scripts/make-image"));
    output(command.arg(directory).arg(name).envs(environment.iter().copied()));
}

/// Compiles a C program of this checkout without libraries, so that it runs in any container.
#[track_caller]
pub fn compile(source: &str, program: &Path) {
    let flags = ["-static", "-O1", "-s", "-Wall", "-Werror", "-o"];
    output(Command::new("cc").args(flags).arg(program).arg(checkout(source)));
}
