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
        lease_api_factor_per_mille: settings.lease_api_factor,
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
        lease_api_factor: settings.lease_api_factor_per_mille,
    }
}

/// The settings with those that `change` names replaced.
#[must_use]
pub fn settings_changed(before: &Settings, change: &v1::SettingsChange) -> Settings {
    Settings {
        ttl_min: change.ttl_min_ms.map_or(before.ttl_min, Millis),
        ttl_max: change.ttl_max_ms.map_or(before.ttl_max, Millis),
        idle_retention: change
            .idle_retention_ms
            .map_or(before.idle_retention, Millis),
        session_leases_max: change
            .session_leases_max
            .unwrap_or(before.session_leases_max),
        lease_waiters_max: change.lease_waiters_max.unwrap_or(before.lease_waiters_max),
        leases_max: change.leases_max.unwrap_or(before.leases_max),
        sessions_max: change.sessions_max.unwrap_or(before.sessions_max),
        lease_api_factor: change
            .lease_api_factor_per_mille
            .unwrap_or(before.lease_api_factor),
    }
}

/// The command of a `Configure` with all settings. What a `change` is to be applied to only a node
/// knows, see [`settings_changed`].
///
/// # Errors
/// A refusal if there are no settings. Whether they are in range is for the state machine to say.
pub fn configure_from_wire(configure: &v1::ConfigureRequest) -> Result<Configure, Refusal> {
    let settings = configure.settings.as_ref();
    let settings =
        settings.ok_or_else(|| Refusal::missing("settings", "all of the settings, or `change`"))?;
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
