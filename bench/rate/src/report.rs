//! The figures as Markdown and as JSON.

use std::fmt::Write as _;

/// Time of one decision.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    /// Of one thread.
    pub(crate) ns: f64,
}

impl Row {
    /// Decisions per second of all threads together.
    pub(crate) fn per_s(&self) -> f64 {
        self.threads as f64 * 1e9 / self.ns
    }
}

/// What many keys take.
pub(crate) struct Memory {
    pub(crate) keys: usize,
    /// By how much the process's resident memory grew.
    pub(crate) grown_bytes: usize,
    /// What the table says that it takes.
    pub(crate) bound_bytes: usize,
    pub(crate) kept: u64,
    pub(crate) displaced: u64,
    pub(crate) ns_per_key: f64,
}

/// What was to be reached.
pub(crate) struct Aim {
    name: &'static str,
    figure: f64,
    words: String,
    pub(crate) reached: bool,
}

impl Aim {
    pub(crate) fn at_most(name: &'static str, figure: f64, most: f64) -> Self {
        Self { name, figure, words: format!("at most {most}"), reached: figure <= most }
    }

    pub(crate) fn at_least(name: &'static str, figure: f64, least: f64) -> Self {
        Self { name, figure, words: format!("at least {least}"), reached: figure >= least }
    }
}

/// All of it.
pub(crate) struct Report {
    pub(crate) alone: Vec<Row>,
    pub(crate) contended: Vec<Row>,
    pub(crate) memory: Memory,
    pub(crate) aims: Vec<Aim>,
}

impl Report {
    // Writing to a text does not fail.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from("| one thread | ns |\n|---|---|\n");
        for row in &self.alone {
            let _ = writeln!(out, "| {} | {:.1} |", row.name, row.ns);
        }
        out.push_str(
            "\n| threads | on | ns per decision of a thread | decisions per second together |\n|---|---|---|---|\n",
        );
        for row in &self.contended {
            let _ = writeln!(out, "| {} | {} | {:.1} | {:.0} |", row.threads, row.name, row.ns, row.per_s());
        }
        let Memory { keys, grown_bytes, bound_bytes, kept, displaced, ns_per_key } = &self.memory;
        let _ = write!(
            out,
            "\n{keys} keys, each new: resident memory grew by {grown_bytes} bytes, the named bound is {bound_bytes}; {kept} slots \
             taken, {displaced} keys displaced; {ns_per_key:.1} ns per key.\n\n| aim | figure | wanted | |\n|---|---|---|---|\n"
        );
        for aim in &self.aims {
            let reached = if aim.reached { "reached" } else { "**missed**" };
            let _ = writeln!(out, "| {} | {:.2} | {} | {reached} |", aim.name, aim.figure, aim.words);
        }
        out
    }

    /// Names hold nothing that JSON would have to escape.
    pub(crate) fn json(&self) -> String {
        let row = |row: &Row| format!("{{\"name\":\"{}\",\"threads\":{},\"ns\":{:.2}}}", row.name, row.threads, row.ns);
        let aim = |aim: &Aim| {
            let Aim { name, figure, words, reached } = aim;
            format!("{{\"name\":\"{name}\",\"figure\":{figure:.3},\"wanted\":\"{words}\",\"reached\":{reached}}}")
        };
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let Memory { keys, grown_bytes, bound_bytes, kept, displaced, ns_per_key } = &self.memory;
        format!(
            "{{\"schema\":\"hotrow-bench-rate/1\",\"alone\":{},\"contended\":{},\"memory\":{{\"keys\":{keys},\"grown_bytes\":\
             {grown_bytes},\"bound_bytes\":{bound_bytes},\"kept\":{kept},\"displaced\":{displaced},\"ns_per_key\":{ns_per_key:.2}}},\
             \"aims\":{}}}\n",
            list(self.alone.iter().map(row).collect()),
            list(self.contended.iter().map(row).collect()),
            list(self.aims.iter().map(aim).collect()),
        )
    }
}
