//! The metrics of the audit.

use metrics::{Counter, counter};

metric_table! {
    describe_counter AUDIT_LINES = "tidings_audit_lines_total", "Lines of the audit, written or lost.";
}

/// The metrics of the audit.
pub(crate) struct AuditMetrics {
    pub(crate) written: Counter,
    pub(crate) lost: Counter,
}

impl AuditMetrics {
    pub(crate) fn new() -> AuditMetrics {
        describe();
        AuditMetrics {
            written: counter!(AUDIT_LINES, "outcome" => "written"),
            lost: counter!(AUDIT_LINES, "outcome" => "lost"),
        }
    }
}
