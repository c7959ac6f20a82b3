//! Compiles every `.proto` file of the workspace to Rust, without an installed `protoc`.

use super::hidden;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

/// The package of the public services; what reflection tells of.
const PUBLIC: &str = "ringfence.v1";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    if !root.is_dir() {
        // So it is in what is published, where the code is in the tree.
        return Err(format!(
            "the feature `generate` needs the `.proto` files of Ringfence's repository, and there is no {}; \
             build without the feature",
            root.display()
        )
        .into());
    }
    // A directory is watched with everything in it, so a new file is noticed too.
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");

    let mut files = Vec::new();
    find_protos(&root, &mut files)?;
    files.sort();
    let mut compiler = protox::Compiler::new([&root])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(&files)?;
    let mut descriptors = compiler.file_descriptor_set();

    let mut public = descriptors.clone();
    public.file.retain(|file| file.package() == PUBLIC);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("public.bin"), public.encode_to_vec())?;

    texts_that_are_ignored_if_malformed(&mut descriptors);

    let secretive = hidden::secretive(&descriptors);
    fs::write(out.join("hidden.rs"), hidden::debug_of(&secretive))?;

    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .skip_debug(
            secretive
                .iter()
                .map(|message| message.path.as_str())
                .collect::<Vec<_>>(),
        )
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}

/// The fields of text whose malformed text is ignored: they are read as bytes, which are the same on the
/// wire. As a string, bytes that are no UTF-8 would fail the whole message, and end a stream.
const IGNORED_IF_MALFORMED: [(&str, &str); 1] = [("ClientFrame", "traceparent")];

fn texts_that_are_ignored_if_malformed(descriptors: &mut FileDescriptorSet) {
    let files = descriptors.file.iter_mut();
    let messages = files
        .filter(|file| file.package() == PUBLIC)
        .flat_map(|file| &mut file.message_type);
    for message in messages {
        let of = message.name().to_owned();
        let fields = message.field.iter_mut();
        let ignored = fields.filter(|field| IGNORED_IF_MALFORMED.contains(&(&of, field.name())));
        ignored.for_each(|field| field.set_type(Type::Bytes));
    }
}

fn find_protos(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_protos(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            found.push(path);
        }
    }
    Ok(())
}
