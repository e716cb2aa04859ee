use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// `cases![a, b]` lists functions with their paths: a table of cases for [`run_cases`](crate::run_cases).
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*] };
}

/// The results of [`run_cases`].
#[derive(Debug)]
pub struct Results {
    count: usize,
    failed: Vec<String>,
}

/// Runs the cases of a test program without a harness, one after the other in this thread: a process that clones
/// containers must have a single thread.
///
/// Arguments of the program are parts of the names of the cases to run; `--list` only lists them. A name is the path of
/// the function below the module `cases`.
pub fn run_cases<T>(cases: impl IntoIterator<Item = (&'static str, T)>, call: impl Fn(T)) -> Results {
    let filters: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_list = env::args().any(|argument| argument == "--list");
    let mut results = Results { count: 0, failed: Vec::new() };
    for (path, case) in cases {
        let name = path.split_once("cases::").map_or(path, |(_, name)| name);
        if !filters.is_empty() && !filters.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        results.count += 1;
        let is_passed = catch_unwind(AssertUnwindSafe(|| call(case))).is_ok();
        println!("test {name} ... {}", if is_passed { "ok" } else { "FAILED" });
        results.failed.extend((!is_passed).then(|| name.to_owned()));
    }
    results
}

impl Results {
    /// Whether all cases passed.
    pub fn all_passed(&self) -> bool {
        self.failed.is_empty()
    }

    /// Prints the results and exits: with 0 if all cases passed.
    pub fn exit(self) -> ! {
        println!("\ntest result: {} cases, {} failed {:?}", self.count, self.failed.len(), self.failed);
        std::process::exit(i32::from(!self.all_passed()));
    }
}
