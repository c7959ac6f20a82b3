//! Levels that this release does not know: from there on the log means something else.

use ringfence_core::snapshot::{Header, Record};
use ringfence_core::{
    Called, Command, Configure, Form, LEVEL_ACCESS, LEVEL_FIRST, LEVEL_OBJECTS, LEVEL_RESTORE,
    Settings,
};
use ringfence_proto::DecodeError;
use ringfence_proto::record::*;

use super::examples;

const BEYOND: u32 = RECORD_VERSION + 1;

fn header(level: u32) -> Vec<u8> {
    let mut records = examples::records().into_iter();
    let header = records.find_map(|(_, record)| match record {
        Record::Header(header) => Some(header),
        _ => None,
    });
    let header = Header {
        level,
        ..header.unwrap()
    };
    let mut bytes = Vec::new();
    encode_record(&Record::Header(header), &mut bytes);
    bytes
}

fn unknown<T>(level: u32) -> Result<T, DecodeError> {
    Err(DecodeError::UnknownLevel {
        level,
        newest: RECORD_VERSION,
    })
}

#[test]
fn an_entry_that_raises_the_level_beyond_this_release_is_not_read() {
    for level in [BEYOND, u32::MAX] {
        let bytes = encode_command(&Command::RaiseLevel { level });
        assert_eq!(decode_command(&bytes), unknown(level));
    }
    let known = Command::RaiseLevel {
        level: RECORD_VERSION,
    };
    assert_eq!(decode_command(&encode_command(&known)), Ok(known));
}

#[test]
fn a_snapshot_of_a_level_beyond_this_release_is_not_read() {
    for level in [BEYOND, u32::MAX] {
        let error = decode_record(&header(level)).unwrap_err();
        assert_eq!(Err(error.clone()), unknown::<Record>(level));
        let said = error.to_string();
        assert!(said.contains(&level.to_string()), "{said}");
        assert!(error.is_newer(), "{said}");
    }
    assert!(decode_record(&header(RECORD_VERSION)).is_ok());
}

/// What `apply` knows, this release may announce.
#[test]
fn the_newest_level_of_the_state_machine_is_known() {
    const { assert!(LEVEL_RESTORE <= RECORD_VERSION) }
}

/// A first member of an older release would read a new field as nothing, or stop.
#[test]
fn a_forming_needs_the_version_of_the_newest_thing_in_it() {
    let needed = [
        ("form", 1),
        ("form_with_a_mode", 4),
        ("form_with_a_quiet_time", LEVEL_RESTORE),
        ("form_restored", LEVEL_RESTORE),
        ("form_a_drill", LEVEL_RESTORE),
        ("seed_rights", LEVEL_RESTORE),
        ("seed_held", LEVEL_RESTORE),
    ];
    let commands = examples::commands();
    for (kind, version) in needed {
        let command = commands.iter().find(|(known, _)| *known == kind);
        let bytes = encode_command(&command.unwrap().1);
        assert_eq!(version_of(&bytes), Some(version), "{kind}");
    }
}

fn with_factor(lease_api_factor: u32) -> Settings {
    Settings {
        lease_api_factor,
        ..Settings::STANDARD
    }
}

/// A node of an older release stops at an entry with the factor of the Lease endpoint.
#[test]
fn settings_need_the_version_of_the_lease_endpoint_if_they_have_its_factor() {
    let standard = Settings::STANDARD.lease_api_factor;
    for (factor, alone, called) in [
        (standard, LEVEL_FIRST, LEVEL_ACCESS),
        (2_000, LEVEL_OBJECTS, LEVEL_OBJECTS),
    ] {
        let settings = with_factor(factor);
        let configure = Command::Configure(Configure {
            based_on: 1,
            settings,
        });
        let version = version_of(&encode_command(&configure));
        assert_eq!(version, Some(alone), "factor {factor}");
        for command in examples::commands() {
            let (_, Command::Called(example)) = command else {
                continue;
            };
            let by_operator = Command::Called(Box::new(Called {
                caller: example.caller.clone(),
                command: configure.clone(),
            }));
            let version = version_of(&encode_command(&by_operator));
            assert_eq!(version, Some(called), "factor {factor}, called");
        }
        let form = examples::commands()
            .into_iter()
            .find_map(|(kind, command)| match command {
                Command::Form(form) if kind == "form" => Some(form),
                _ => None,
            });
        let form = Command::Form(Form {
            settings,
            ..form.unwrap()
        });
        let version = version_of(&encode_command(&form));
        assert_eq!(version, Some(alone), "factor {factor}, formed");
    }
}
