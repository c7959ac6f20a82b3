//! The cluster itself.

use ringfence_core::{Configure, Millis, Settings};

use crate::{DecodeError, Refusal, fields, v1};

/// The replicated settings.
#[must_use]
pub fn settings_to_wire(settings: &Settings) -> v1::Settings {
    v1::Settings {
        ttl_min_ms: settings.ttl_min.0,
        ttl_max_ms: settings.ttl_max.0,
        idle_retention_ms: settings.idle_retention.0,
        session_leases_max: settings.session_leases_max,
        lease_waiters_max: settings.lease_waiters_max,
        leases_max: settings.leases_max,
        sessions_max: settings.sessions_max,
    }
}

/// The replicated settings; whether they are in range, [`Settings::check`] says.
#[must_use]
pub fn settings_from_wire(settings: &v1::Settings) -> Settings {
    Settings {
        ttl_min: Millis(settings.ttl_min_ms),
        ttl_max: Millis(settings.ttl_max_ms),
        idle_retention: Millis(settings.idle_retention_ms),
        session_leases_max: settings.session_leases_max,
        lease_waiters_max: settings.lease_waiters_max,
        leases_max: settings.leases_max,
        sessions_max: settings.sessions_max,
    }
}

/// The command of a `Configure`.
///
/// # Errors
/// A refusal if there are no settings. Whether they are in range is for the state machine to say.
pub fn configure_from_wire(configure: &v1::ConfigureRequest) -> Result<Configure, Refusal> {
    let settings = configure.settings.as_ref();
    let settings = settings.ok_or_else(|| Refusal::missing("settings", "all of the settings"))?;
    Ok(Configure {
        based_on: configure.based_on,
        settings: settings_from_wire(settings),
    })
}

/// The settings that a node's status tells.
///
/// # Errors
/// [`DecodeError`] if it tells none, as before the cluster is formed.
pub fn status_settings(status: &v1::StatusResponse) -> Result<Settings, DecodeError> {
    fields::there(status.settings.as_ref(), "status.settings").map(settings_from_wire)
}
