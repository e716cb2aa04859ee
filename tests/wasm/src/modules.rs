//! Modules in the text format. All are commands of WASI preview 1, unless they are named `COMPONENT…`.

/// Writes `hello from a module` to standard output.
pub const HELLO: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "hello from a module\n")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 8))
    (i32.store (i32.const 4) (i32.const 20))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100)))))"#;

/// Exits with 42.
pub const EXIT: &str = r#"(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $exit (i32.const 42))))"#;

/// Writes its arguments to standard output, each followed by a NUL byte.
pub const ARGUMENTS: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 12)))
    (drop (call $get (i32.const 100) (i32.const 4096)))
    (i32.store (i32.const 8) (i32.const 4096))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 20)))))"#;

/// Writes its environment to standard output, each variable followed by a NUL byte.
pub const ENVIRONMENT: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 12)))
    (drop (call $get (i32.const 100) (i32.const 4096)))
    (i32.store (i32.const 8) (i32.const 4096))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 20)))))"#;

/// Never returns.
pub const LOOP: &str = r#"(module (memory (export "memory") 1) (func (export "_start") (loop (br 0))))"#;

/// Sleeps for a day.
pub const IDLE: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 86400000000000))
    (drop (call $poll (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200)))))"#;

/// Recurses without end.
pub const DEEP: &str = r#"(module (memory (export "memory") 1)
  (func $deeper (param i64) (result i64) (i64.add (call $deeper (local.get 0)) (i64.const 1)))
  (func (export "_start") (drop (call $deeper (i64.const 0)))))"#;

/// Executes `unreachable`.
pub const TRAP: &str = r#"(module (memory (export "memory") 1) (func (export "_start") unreachable))"#;

/// Grows its memory until that fails, and writes nothing to it.
pub const GROW: &str = r#"(module (memory (export "memory") 1)
  (func (export "_start") (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))))"#;

/// Grows its memory until that fails, and writes to each page.
pub const TOUCH: &str = r#"(module (memory (export "memory") 1)
  (func (export "_start") (local $page i32) (local $at i32) (local $step i32)
    (loop $grow
      (local.set $page (memory.grow (i32.const 1)))
      (if (i32.ne (local.get $page) (i32.const -1)) (then
        (local.set $at (i32.mul (local.get $page) (i32.const 65536)))
        (local.set $step (i32.const 16))
        (loop $write
          (i32.store (local.get $at) (i32.const 1))
          (local.set $at (i32.add (local.get $at) (i32.const 4096)))
          (local.set $step (i32.sub (local.get $step) (i32.const 1)))
          (br_if $write (local.get $step)))
        (br $grow))))))"#;

/// Has a table of a billion elements.
pub const TABLE: &str = r#"(module (memory (export "memory") 1) (table 1000000000 funcref) (func (export "_start")))"#;

/// Grows a table until that fails.
pub const TABLE_GROW: &str = r#"(module (memory (export "memory") 1) (table 1 funcref)
  (func (export "_start")
    (loop (br_if 0 (i32.ne (table.grow (ref.null func) (i32.const 100000)) (i32.const -1))))))"#;

/// A component that returns at once.
pub const COMPONENT: &str = r#"(component
  (core module $code (func (export "run") (result i32) (i32.const 0)))
  (core instance $code (instantiate $code))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#;

/// A component that returns an error.
pub const COMPONENT_ERROR: &str = r#"(component
  (core module $code (func (export "run") (result i32) (i32.const 1)))
  (core instance $code (instantiate $code))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#;

/// Returns a module that writes a file of at most 1000 bytes to standard output. `path` is relative to the root. It exits
/// with the number of the error if the file cannot be opened.
#[must_use]
pub fn read_file(path: &str) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "{path}")
  (func (export "_start") (local $error i32)
    (local.set $error (call $open (i32.const 3) (i32.const 1) (i32.const 100) (i32.const {length}) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
    (if (local.get $error) (then (call $exit (local.get $error))))
    (i32.store (i32.const 8) (i32.const 4096))
    (i32.store (i32.const 12) (i32.const 1000))
    (drop (call $read (i32.load (i32.const 0)) (i32.const 8) (i32.const 1) (i32.const 20)))
    (i32.store (i32.const 12) (i32.load (i32.const 20)))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 20)))))"#,
        length = path.len()
    )
}

/// Returns a module whose compilation takes long: each of its functions has a thousand additions.
#[must_use]
pub fn slow(functions: usize) -> String {
    let body = "(local.set 1 (i64.add (i64.mul (local.get 0) (local.get 1)) (i64.const 7)))".repeat(1000);
    let function = format!("(func (param i64) (result i64) (local i64) {body} (local.get 1))");
    format!(r#"(module (memory (export "memory") 1) {} (func (export "_start")))"#, function.repeat(functions))
}

/// Writes `ready`, reads a line from standard input, writes it to standard output after `got `, and exits with the file type
/// of standard input: 2 for a character device.
pub const TERMINAL: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $stat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "ready\0agot ")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 100))
    (i32.store (i32.const 4) (i32.const 6))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))
    (i32.store (i32.const 0) (i32.const 110))
    (i32.store (i32.const 4) (i32.const 100))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 20)))
    (i32.store (i32.const 0) (i32.const 106))
    (i32.store (i32.const 4) (i32.add (i32.load (i32.const 20)) (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))
    (drop (call $stat (i32.const 0) (i32.const 40)))
    (call $exit (i32.load8_u (i32.const 40)))))"#;
