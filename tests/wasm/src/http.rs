//! A component of the world `wasi:http/proxy`, in the text format.

/// Cases of `wasi:http/types.error-code` with their payloads. The type of an import must be complete.
const ERROR_CODE: &str = r#"
      (case "DNS-timeout") (case "DNS-error" $dns) (case "destination-not-found") (case "destination-unavailable")
      (case "destination-IP-prohibited") (case "destination-IP-unroutable") (case "connection-refused")
      (case "connection-terminated") (case "connection-timeout") (case "connection-read-timeout")
      (case "connection-write-timeout") (case "connection-limit-reached") (case "TLS-protocol-error")
      (case "TLS-certificate-error") (case "TLS-alert-received" $alert) (case "HTTP-request-denied")
      (case "HTTP-request-length-required") (case "HTTP-request-body-size" (option u64))
      (case "HTTP-request-method-invalid") (case "HTTP-request-URI-invalid") (case "HTTP-request-URI-too-long")
      (case "HTTP-request-header-section-size" (option u32)) (case "HTTP-request-header-size" (option $field))
      (case "HTTP-request-trailer-section-size" (option u32)) (case "HTTP-request-trailer-size" $field)
      (case "HTTP-response-incomplete") (case "HTTP-response-header-section-size" (option u32))
      (case "HTTP-response-header-size" $field) (case "HTTP-response-body-size" (option u64))
      (case "HTTP-response-trailer-section-size" (option u32)) (case "HTTP-response-trailer-size" $field)
      (case "HTTP-response-transfer-coding" (option string)) (case "HTTP-response-content-coding" (option string))
      (case "HTTP-response-timeout") (case "HTTP-upgrade-failed") (case "HTTP-protocol-error") (case "loop-detected")
      (case "configuration-error") (case "internal-error" (option string))"#;

/// Returns a component that answers every request with this status and without a body.
#[must_use]
pub fn http_component(status: u16) -> String {
    format!(
        r#"(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "fields" (type $fields (sub resource)))
    (export "incoming-request" (type (sub resource)))
    (export "outgoing-response" (type $response (sub resource)))
    (export "response-outparam" (type $outparam (sub resource)))
    (type $dns' (record (field "rcode" (option string)) (field "info-code" (option u16))))
    (export "DNS-error-payload" (type $dns (eq $dns')))
    (type $alert' (record (field "alert-id" (option u8)) (field "alert-message" (option string))))
    (export "TLS-alert-received-payload" (type $alert (eq $alert')))
    (type $field' (record (field "field-name" (option string)) (field "field-size" (option u32))))
    (export "field-size-payload" (type $field (eq $field')))
    (type $error' (variant {ERROR_CODE}))
    (export "error-code" (type $error (eq $error')))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[constructor]outgoing-response" (func (param "headers" (own $fields)) (result (own $response))))
    (export "[method]outgoing-response.set-status-code"
      (func (param "self" (borrow $response)) (param "status-code" u16) (result (result))))
    (export "[static]response-outparam.set"
      (func (param "param" (own $outparam)) (param "response" (result (own $response) (error $error)))))))
  (alias export $types "incoming-request" (type $incoming))
  (alias export $types "response-outparam" (type $outparam))
  (core module $memory (memory (export "memory") 1))
  (core instance $memory (instantiate $memory))
  (core func $fields (canon lower (func $types "[constructor]fields")))
  (core func $response (canon lower (func $types "[constructor]outgoing-response")))
  (core func $status (canon lower (func $types "[method]outgoing-response.set-status-code")))
  (core func $set (canon lower (func $types "[static]response-outparam.set") (memory (core memory $memory "memory"))))
  (core module $code
    (import "types" "fields" (func $fields (result i32)))
    (import "types" "response" (func $response (param i32) (result i32)))
    (import "types" "status" (func $status (param i32 i32) (result i32)))
    (import "types" "set" (func $set (param i32 i32 i32 i32 i64 i32 i32 i32 i32)))
    (func (export "handle") (param $request i32) (param $out i32) (local $created i32)
      (local.set $created (call $response (call $fields)))
      (drop (call $status (local.get $created) (i32.const {status})))
      (call $set (local.get $out) (i32.const 0) (local.get $created) (i32.const 0) (i64.const 0) (i32.const 0)
        (i32.const 0) (i32.const 0) (i32.const 0))))
  (core instance $code (instantiate $code (with "types" (instance
    (export "fields" (func $fields)) (export "response" (func $response)) (export "status" (func $status))
    (export "set" (func $set))))))
  (func $handle (param "request" (own $incoming)) (param "response-out" (own $outparam))
    (canon lift (core func $code "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))"#
    )
}

/// A component that writes `started` to standard output for each request, waits a second, writes `finished`, and returns
/// without a response.
pub const HTTP_WAIT: &str = r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $pollable'))
    (export "pollable" (type $pollable (eq $pollable')))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
  (alias export $errors "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $output (sub resource)))
    (alias outer 1 $error (type $error'))
    (export "error" (type $error (eq $error')))
    (type $failure' (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $failure (eq $failure')))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $output)) (param "contents" (list u8)) (result (result (error $failure)))))))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output (type $output'))
    (export "output-stream" (type $output (eq $output')))
    (export "get-stdout" (func (result (own $output))))))
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $incoming))
  (alias export $types "response-outparam" (type $outparam))
  (core module $memory (memory (export "memory") 1) (data (i32.const 100) "started\nfinished\n"))
  (core instance $memory (instantiate $memory))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $timer (canon lower (func $clock "subscribe-duration")))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory"))))
  (core module $code
    (import "host" "block" (func $block (param i32)))
    (import "host" "timer" (func $timer (param i64) (result i32)))
    (import "host" "stdout" (func $stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "handle") (param $request i32) (param $out i32) (local $output i32)
      (local.set $output (call $stdout))
      (call $write (local.get $output) (i32.const 100) (i32.const 8) (i32.const 0))
      (call $block (call $timer (i64.const 1000000000)))
      (call $write (local.get $output) (i32.const 108) (i32.const 9) (i32.const 0))))
  (core instance $code (instantiate $code (with "host" (instance
    (export "block" (func $block)) (export "timer" (func $timer)) (export "stdout" (func $stdout))
    (export "write" (func $write))))))
  (func $handle (param "request" (own $incoming)) (param "response-out" (own $outparam))
    (canon lift (core func $code "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_is_valid_text() {
        assert!(crate::binary(&http_component(418)).starts_with(b"\0asm\x0d\0\x01\0"));
    }
}
