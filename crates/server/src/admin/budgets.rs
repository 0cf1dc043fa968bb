//! Byte budgets on the admin side.

use std::sync::Arc;

use hotrow_admission::byte_budget::ByteBudget;
use hotrow_telemetry::exposition::Exposition;
use serde_json::{Map, Value, json};

use super::View;

impl View {
    fn budgets_by_name(&self) -> [(&'static str, &Arc<ByteBudget>); 3] {
        let budgets = &self.shared.budgets;
        [("answers", &budgets.answers), ("bodies", &budgets.bodies), ("rows", &budgets.rows)]
    }

    pub(super) fn expose_budgets(&self, out: &mut Exposition) {
        let budgets = self.budgets_by_name();
        let series = |read: fn(&ByteBudget) -> u64| {
            budgets.map(|(name, budget)| ([("budget", name)], read(budget)))
        };
        out.gauge(
            "hotrow_budget_used_bytes",
            "Bytes reserved of a byte budget.",
            series(ByteBudget::used_bytes),
        );
        out.gauge(
            "hotrow_budget_limit_bytes",
            "Limit of a byte budget.",
            series(ByteBudget::limit_bytes),
        );
        let refused = series(ByteBudget::refused_total);
        out.counter(
            "hotrow_budget_refused_total",
            "Reservations that found no room in a byte budget.",
            refused,
        );
        let too_large = self.shared.budgets.too_large_total();
        out.counter(
            "hotrow_answers_too_large_total",
            "Answers refused because they were larger than limits.answer_bytes.",
            [([], too_large)],
        );
    }

    /// Returns the section `budgets` of `/status`.
    pub(super) fn budgets(&self) -> Value {
        let of = |(name, budget): (&'static str, &Arc<ByteBudget>)| {
            let refused = budget.refused_total();
            let value = json!({
                "used_bytes": budget.used_bytes(),
                "limit_bytes": budget.limit_bytes(),
                "refused": refused,
            });
            (name.to_owned(), value)
        };
        let budgets: Map<String, Value> = self.budgets_by_name().into_iter().map(of).collect();
        Value::Object(budgets)
    }
}
