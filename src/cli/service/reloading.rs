//! What is told of a configuration that was read while the daemon runs. The first one of a daemon that had none is no change.

use crate::config::Settings;
use crate::config::changed::changed_keys;
use crate::record::{BeginCause, RecordStart};

/// How the record goes on with these settings in the place of those before.
pub(super) fn begin_record(before: &Settings, now: &Settings) -> RecordStart {
    if !before.configured {
        return RecordStart {
            cause: BeginCause::Configured,
            ..RecordStart::default()
        };
    }
    RecordStart {
        cause: BeginCause::Reloaded,
        changed: changed_keys(&before.text, &now.text),
        ..RecordStart::default()
    }
}

/// Says in the log that the file was read.
pub(super) fn log_reading(was_configured: bool, is_configured: bool) {
    if is_configured && !was_configured {
        tracing::info!("the configuration was read; nothing was configured before");
    } else {
        tracing::info!("the configuration was read again");
    }
}
