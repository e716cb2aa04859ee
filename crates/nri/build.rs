//! Compiles the messages of the protocol in pure Rust: no `protoc` is needed. Also writes a table of their fields, with
//! which `src/bounded.rs` counts the entries of a message before it is decoded.

use std::{error::Error, fmt::Write as _, path::Path};

use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Label, field_descriptor_proto::Type};

fn main() -> Result<(), Box<dyn Error>> {
    const PROTO: &str = "proto/nri-v1alpha1.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("fields.rs"), table(&files)?)?;
    // The services are spoken over ttrpc, for which `src/ttrpc.rs` needs the messages only.
    tonic_prost_build::configure().build_client(false).build_server(false).btree_map(".").compile_fds(files)?;
    Ok(())
}

/// Returns the table of the fields of all messages, and the index of each message in it.
fn table(files: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let mut messages = Vec::new();
    for file in &files.file {
        collect(&format!(".{}", file.package()), &file.message_type, &mut messages);
    }
    let mut table = "static MESSAGES: &[&[Field]] = &[\n".to_owned();
    for (_, message) in &messages {
        table.push_str("    &[\n");
        for field in &message.field {
            let kind = match field.r#type() {
                Type::Message => {
                    let index = messages.iter().position(|(name, _)| name == field.type_name());
                    format!("Kind::Message({})", index.ok_or("a message is not defined")?)
                }
                Type::String | Type::Bytes => "Kind::Bytes".to_owned(),
                _ => "Kind::Number".to_owned(),
            };
            let is_repeated = field.label() == Label::Repeated;
            writeln!(
                table,
                "        Field {{ number: {}, is_repeated: {is_repeated}, kind: {kind} }},",
                field.number()
            )?;
        }
        table.push_str("    ],\n");
    }
    table.push_str("];\n");
    for (index, (name, _)) in messages.iter().enumerate() {
        // Entries of maps are messages of their own only on the wire.
        if let [_, _, _, name] = name.split('.').collect::<Vec<_>>()[..] {
            writeln!(table, "impl Bounded for crate::messages::{name} {{\n    const INDEX: usize = {index};\n}}")?;
        }
    }
    Ok(table)
}

/// Lists messages with their full names, and those that are defined in them.
fn collect<'a>(scope: &str, messages: &'a [DescriptorProto], list: &mut Vec<(String, &'a DescriptorProto)>) {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        collect(&name, &message.nested_type, list);
        list.push((name, message));
    }
}
