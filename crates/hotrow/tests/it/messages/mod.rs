//! Mistakes of users, and what each is answered: a table per kind of input. An answer names what is
//! wrong, the rule, and what to do.

mod file;
mod http;

use hotrow_testkit::harness::{Ended, SOON};

/// A mistake and a part of its answer.
pub(crate) type Mistake = (&'static str, &'static str);

/// Command lines and what standard error says; each exits with status 2.
const COMMAND_LINES: &[Mistake] = &[
    ("hotrow serve --demo --demo-writes x", "must be a whole number between 1 and 20000"),
    ("hotrow serve --demo --config hotrow.toml", "--demo"),
    ("hotrow check", "--config <FILE>"),
];

/// Fails with every mistake of a table whose answer lacks the expected part.
pub(crate) fn check(table: &[Mistake], answer_of: impl Fn(&str) -> String) {
    let wrong: Vec<String> = table
        .iter()
        .map(|(input, part)| (input, part, answer_of(input)))
        .filter(|(_, part, answer)| !answer.contains(*part))
        .map(|(input, part, answer)| format!("{input}\nlacks: {part}\nin: {answer}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn command_lines() {
    check(COMMAND_LINES, |line| {
        let arguments: Vec<&str> = line.split(' ').skip(1).collect();
        let ended = Ended::run_with(&arguments, &[], SOON);
        assert_eq!((ended.code(), ended.output.as_str()), (2, ""), "{line}: {ended:?}");
        ended.log
    });
}
