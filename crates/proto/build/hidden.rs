//! Messages with a secret get a `Debug` that leaves it out: what is derived for generated types
//! would show it in every log.

use prost_types::{DescriptorProto, FileDescriptorSet};

/// A message with a secret.
pub(crate) struct Secretive {
    /// Its full name in `.proto` files.
    pub(crate) path: String,
    /// Where its Rust type stands, below the module of generated code.
    rust: String,
    name: String,
    /// The fields to show.
    shown: Vec<String>,
}

/// All messages that have a field whose name begins with `secret`.
pub(crate) fn secretive(descriptors: &FileDescriptorSet) -> Vec<Secretive> {
    let mut found = Vec::new();
    for file in &descriptors.file {
        let package = file.package();
        let module = package.replace('.', "::");
        for message in &file.message_type {
            visit(message, package, &module, &mut found);
        }
    }
    found
}

fn visit(message: &DescriptorProto, outer: &str, module: &str, found: &mut Vec<Secretive>) {
    let name = message.name();
    let path = format!("{outer}.{name}");
    let hide = |field: &str| field.starts_with("secret");
    if message.field.iter().any(|field| hide(field.name())) {
        // Choices are left out: in Rust they are one field under the name of the choice.
        let plain = message
            .field
            .iter()
            .filter(|field| field.oneof_index.is_none() || field.proto3_optional());
        let shown = plain
            .map(|field| field.name().to_owned())
            .filter(|field| !hide(field));
        found.push(Secretive {
            rust: format!("{module}::{name}"),
            name: name.to_owned(),
            shown: shown.collect(),
            path: path.clone(),
        });
    }
    for nested in &message.nested_type {
        visit(nested, &path, &format!("{module}::{}", snake(name)), found);
    }
}

/// Rust code that implements `Debug` for all of them.
pub(crate) fn debug_of(messages: &[Secretive]) -> String {
    messages.iter().map(debug_of_one).collect()
}

fn debug_of_one(message: &Secretive) -> String {
    let Secretive {
        rust, name, shown, ..
    } = message;
    let fields: String = shown
        .iter()
        .map(|field| format!(".field({field:?}, &self.{field})"))
        .collect();
    format!(
        "impl ::core::fmt::Debug for {rust} {{\n\
         fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n\
         f.debug_struct({name:?}){fields}.finish_non_exhaustive()\n}}\n}}\n"
    )
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
