//! The warm start in `/status` and `/metrics`.
//!
//! Reference `metrics`: Warm start
//!
//! With [`warm.file`](production.md#warm-start).
//!
//! - `hotrow_warm_start_active`: 1 until the reads after a start have ended.
//! - `hotrow_warm_start_keys_total` (`result`): Keys `read` from the database; `unusable`: of a
//!   collection that no longer exists, or of another key type.
//! - `hotrow_hot_keys_files_total` (`result`): Files `written`, `failed`. **Any** `failed`: no
//!   room, or no permission in the folder.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_telemetry::exposition::Exposition;
use serde_json::{Value, json};

use super::View;

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl View {
    /// Returns the state of the warm start; null where none is configured.
    pub(super) fn warm_start(&self) -> Value {
        let Some(warm) = &self.shared.warm_start else { return Value::Null };
        json!({
            "stage": warm.stage().label(),
            "file_keys": get(&warm.file_keys),
            "read_keys": get(&warm.read_keys),
            "unusable_keys": get(&warm.unusable_keys),
            "files_written": get(&warm.files),
            "files_failed": get(&warm.failed_files),
            "written_keys": get(&warm.written_keys),
        })
    }

    pub(super) fn expose_warm_start(&self, out: &mut Exposition) {
        let Some(warm) = &self.shared.warm_start else { return };
        out.gauge(
            "hotrow_warm_start_active",
            "1 while hot records of the last run wait to be read, or are read.",
            [([], u64::from(!warm.stage().is_over()))],
        );
        out.counter(
            "hotrow_warm_start_keys_total",
            "Keys of the file of hot keys that were read or could not be used.",
            [
                ([("result", "read")], get(&warm.read_keys)),
                ([("result", "unusable")], get(&warm.unusable_keys)),
            ],
        );
        out.counter(
            "hotrow_hot_keys_files_total",
            "Files of hot keys that were written or could not be.",
            [
                ([("result", "written")], get(&warm.files)),
                ([("result", "failed")], get(&warm.failed_files)),
            ],
        );
    }
}
