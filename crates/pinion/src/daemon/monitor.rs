use std::{
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::Failure;

const NAME: &str = "pinmon";

/// Finds the monitor program: the configured one, else in the directory of this program, in `../libexec/pinion`, or in
/// `$PATH`.
pub(crate) fn find(configured: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = configured {
        return match is_program(path) {
            true => Ok(path.to_path_buf()),
            false => Err(Failure::daemon(format!(
                "monitor {}: not an executable file; correct `monitor` in the configuration",
                path.display()
            ))),
        };
    }
    let candidates = candidates();
    let program = candidates.iter().find(|path| is_program(path));
    program.cloned().ok_or_else(|| {
        let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Failure::daemon(format!(
            "find the monitor: no program at {}; install {NAME} or set `monitor` in the configuration",
            places.join(", ")
        ))
    })
}

fn candidates() -> Vec<PathBuf> {
    let program_directory = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let next_to_program = program_directory
        .into_iter()
        .flat_map(|directory| [directory.join(NAME), directory.join("../libexec/pinion").join(NAME)]);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(NAME))
        .collect();
    next_to_program.chain(in_path).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
