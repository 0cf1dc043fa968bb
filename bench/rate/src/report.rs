//! The figures as Markdown and as JSON.

use std::fmt::Write as _;

/// Time of one decision.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    /// Time per decision of one thread.
    pub(crate) ns: f64,
}

impl Row {
    /// Returns the decisions per second of all threads together.
    pub(crate) fn per_s(&self) -> f64 {
        self.threads as f64 * 1e9 / self.ns
    }
}

/// Memory of many keys.
pub(crate) struct Memory {
    pub(crate) keys: usize,
    /// Growth of the process's resident memory.
    pub(crate) grown_bytes: usize,
    /// The table's own upper bound.
    pub(crate) bound_bytes: usize,
    pub(crate) kept: u64,
    pub(crate) displaced: u64,
    pub(crate) ns_per_key: f64,
}

/// A goal and whether it was reached.
pub(crate) struct Goal {
    name: &'static str,
    figure: f64,
    words: String,
    pub(crate) reached: bool,
}

impl Goal {
    pub(crate) fn at_most(name: &'static str, figure: f64, most: f64) -> Self {
        Self { name, figure, words: format!("at most {most}"), reached: figure <= most }
    }

    pub(crate) fn at_least(name: &'static str, figure: f64, least: f64) -> Self {
        Self { name, figure, words: format!("at least {least}"), reached: figure >= least }
    }
}

/// All figures.
pub(crate) struct Report {
    pub(crate) alone: Vec<Row>,
    pub(crate) contended: Vec<Row>,
    pub(crate) memory: Memory,
    pub(crate) goals: Vec<Goal>,
}

impl Report {
    // Writing to a string cannot fail.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from("| one thread | ns |\n|---|---|\n");
        for row in &self.alone {
            let _ = writeln!(out, "| {} | {:.1} |", row.name, row.ns);
        }
        out.push_str(
            "\n| threads | on | ns per decision of a thread | decisions per second together |\n\
             |---|---|---|---|\n",
        );
        for row in &self.contended {
            let _ = writeln!(
                out,
                "| {} | {} | {:.1} | {:.0} |",
                row.threads,
                row.name,
                row.ns,
                row.per_s()
            );
        }
        let Memory { keys, grown_bytes, bound_bytes, kept, displaced, ns_per_key } = &self.memory;
        let _ = write!(
            out,
            "\n{keys} keys, each new: resident memory grew by {grown_bytes} bytes, the named bound \
             is {bound_bytes}; {kept} slots taken, {displaced} keys displaced; {ns_per_key:.1} ns \
             per key.\n\n| goal | figure | wanted | |\n|---|---|---|---|\n"
        );
        for goal in &self.goals {
            let reached = if goal.reached { "reached" } else { "**missed**" };
            let _ = writeln!(
                out,
                "| {} | {:.2} | {} | {reached} |",
                goal.name, goal.figure, goal.words
            );
        }
        out
    }

    /// Returns one JSON object. Names contain nothing that JSON must escape.
    pub(crate) fn json(&self) -> String {
        let row = |row: &Row| {
            format!(
                "{{\"name\":\"{}\",\"threads\":{},\"ns\":{:.2}}}",
                row.name, row.threads, row.ns
            )
        };
        let goal = |goal: &Goal| {
            let Goal { name, figure, words, reached } = goal;
            format!(
                "{{\"name\":\"{name}\",\"figure\":{figure:.3},\"wanted\":\"{words}\",\
                 \"reached\":{reached}}}"
            )
        };
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let Memory { keys, grown_bytes, bound_bytes, kept, displaced, ns_per_key } = &self.memory;
        format!(
            "{{\"schema\":\"hotrow-bench-rate/1\",\"alone\":{},\"contended\":{},\
             \"memory\":{{\"keys\":{keys},\"grown_bytes\":{grown_bytes},\
             \"bound_bytes\":{bound_bytes},\"kept\":{kept},\"displaced\":{displaced},\
             \"ns_per_key\":{ns_per_key:.2}}},\"aims\":{}}}\n",
            list(self.alone.iter().map(row).collect()),
            list(self.contended.iter().map(row).collect()),
            list(self.goals.iter().map(goal).collect()),
        )
    }
}
