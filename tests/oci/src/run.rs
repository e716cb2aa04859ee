use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::{Case, Runtime, known_failure, leftovers};

/// Runs a case, checks for leftovers, and compares the result with the known failures of the runtime.
///
/// `module` is the path of the module that contains the tests of the case: `suite::lifecycle::double_create`.
///
/// # Panics
/// If the case fails and is not a known failure, or passes and is one.
pub fn run(runtime: Runtime, module: &str, body: fn(&Case)) {
    let name = module.split_once("::").map_or(module, |(_, name)| name);
    let case = Case::new(runtime);
    let result = catch_unwind(AssertUnwindSafe(|| {
        body(&case);
        case.assert_no_leftovers();
    }));
    leftovers::remove(&case.tag, case.directory());
    match (known_failure(runtime, name), result) {
        (None, Ok(())) => {}
        (None, Err(failure)) => resume_unwind(failure),
        (Some(reason), Err(failure)) => println!("known failure: {reason}\n{}", text(failure.as_ref())),
        (Some(reason), Ok(())) => panic!("the case passes; remove its entry from known_failures.rs: {reason}"),
    }
}

fn text(failure: &(dyn Any + Send)) -> &str {
    let owned = failure.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| failure.downcast_ref::<&str>().copied()).unwrap_or("")
}
