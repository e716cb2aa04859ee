use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::{Case, Runtime, known, left};

/// Runs a case, checks that nothing stays, and holds the result against what is known of the runtime.
///
/// `module` is the path of the module that the case's tests are in: `suite::lifecycle::double_create`.
///
/// # Panics
/// If the case fails and is not known to, or is known to fail and does not.
pub fn run(runtime: Runtime, module: &str, body: fn(&Case)) {
    let name = module.split_once("::").map_or(module, |(_, name)| name);
    let case = Case::new(runtime);
    let result = catch_unwind(AssertUnwindSafe(|| {
        body(&case);
        case.nothing_is_left();
    }));
    left::clean(&case.tag, case.directory());
    match (known(runtime, name), result) {
        (None, Ok(())) => {}
        (None, Err(failure)) => resume_unwind(failure),
        (Some(reason), Err(failure)) => println!("known: {reason}\n{}", text(failure.as_ref())),
        (Some(reason), Ok(())) => panic!("passes, so the entry in known.rs is wrong: {reason}"),
    }
}

fn text(failure: &(dyn Any + Send)) -> &str {
    let owned = failure.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| failure.downcast_ref::<&str>().copied()).unwrap_or("")
}
