//! The shape of the `.proto` files: what is in use is neither removed nor renumbered nor given
//! another type.
//!
//! One golden file per package, a line for each field, enum value and call. New lines are recorded
//! with `RECORD=1`. A line that is gone is an error also then: while a package has never been
//! released its file can be deleted and recorded again, afterwards a field is only ever added.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use protox::prost_reflect::{Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind};
use protox::prost_reflect::{MessageDescriptor, MethodDescriptor};

use super::golden::{path, recording};

const PACKAGES: [&str; 3] = ["ringfence.v1", "ringfence.raft.v1", "ringfence.record.v1"];

/// All `.proto` files.
pub(crate) fn pool() -> DescriptorPool {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "proto")
            {
                files.push(path);
            }
        }
    }
    let mut compiler = protox::Compiler::new([root]).unwrap();
    compiler.include_imports(true).open_files(files).unwrap();
    compiler.descriptor_pool()
}

/// What is said of each field, enum value and call, by package.
fn shape(pool: &DescriptorPool) -> BTreeMap<String, BTreeSet<String>> {
    let mut shape = BTreeMap::<_, BTreeSet<_>>::new();
    for message in pool.all_messages() {
        let lines = shape.entry(message.package_name().to_owned()).or_default();
        lines.extend(message.fields().map(|field| field_line(&message, &field)));
    }
    for descriptor in pool.all_enums() {
        let lines = shape
            .entry(descriptor.package_name().to_owned())
            .or_default();
        lines.extend(enum_lines(&descriptor));
    }
    for service in pool.services() {
        let lines = shape.entry(service.package_name().to_owned()).or_default();
        lines.extend(service.methods().map(|method| method_line(&method)));
    }
    shape
}

fn field_line(message: &MessageDescriptor, field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(inner) if inner.is_map_entry() => {
            let value = inner.map_entry_value_field().kind();
            format!("map<{:?}, {value:?}>", inner.map_entry_key_field().kind())
        }
        Kind::Message(inner) => inner.full_name().to_owned(),
        Kind::Enum(inner) => inner.full_name().to_owned(),
        plain => format!("{plain:?}").to_lowercase(),
    };
    let repeated = match field.cardinality() {
        Cardinality::Repeated if !field.is_map() => "repeated ",
        _ => "",
    };
    let choice = match field.containing_oneof() {
        Some(choice) if choice.is_synthetic() => " optional".to_owned(),
        Some(choice) => format!(" in {}", choice.name()),
        None => String::new(),
    };
    format!(
        "{}.{} = {}: {repeated}{kind}{choice}",
        message.full_name(),
        field.name(),
        field.number()
    )
}

fn enum_lines(descriptor: &EnumDescriptor) -> Vec<String> {
    let values = descriptor.values();
    values
        .map(|value| {
            format!(
                "{}.{} = {}",
                descriptor.full_name(),
                value.name(),
                value.number()
            )
        })
        .collect()
}

fn method_line(method: &MethodDescriptor) -> String {
    let stream = |streams| if streams { "stream " } else { "" };
    format!(
        "{}({}{}) returns ({}{})",
        method.full_name(),
        stream(method.is_client_streaming()),
        method.input().full_name(),
        stream(method.is_server_streaming()),
        method.output().full_name()
    )
}

#[test]
fn nothing_in_use_is_removed_renumbered_or_given_another_type() {
    let shape = shape(&pool());
    assert_eq!(
        shape.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        PACKAGES.into()
    );
    let mut complaints = Vec::new();
    for (package, found) in shape {
        let path = path(&format!("{package}.txt"));
        let told = fs::read_to_string(&path).unwrap_or_default();
        let told: BTreeSet<String> = told.lines().map(str::to_owned).collect();
        let gone: Vec<_> = told.difference(&found).collect();
        let new: Vec<_> = found.difference(&told).collect();
        if !gone.is_empty() {
            complaints.push(format!("{package}: these are gone or changed: {gone:#?}"));
        } else if recording() {
            let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
            fs::write(&path, lines).unwrap();
        } else if !new.is_empty() {
            complaints.push(format!("{package}: new, RECORD=1 records them: {new:#?}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_enum_begins_with_an_unspecified_value() {
    for descriptor in pool().all_enums() {
        let zero = descriptor.get_value(0).unwrap();
        assert!(zero.name().ends_with("UNSPECIFIED"), "{}", zero.full_name());
    }
}

#[test]
fn reflection_tells_of_the_public_package_only() {
    let told = DescriptorPool::decode(ringfence_proto::FILE_DESCRIPTOR_SET).unwrap();

    let packages: BTreeSet<_> = told
        .files()
        .map(|file| file.package_name().to_owned())
        .collect();
    assert_eq!(packages, ["ringfence.v1".to_owned()].into());
    let services: BTreeSet<_> = told
        .services()
        .map(|service| service.name().to_owned())
        .collect();
    let expected = ["Access", "Cluster", "Connection", "Leases", "Sessions"];
    assert_eq!(services, expected.map(str::to_owned).into());
}
