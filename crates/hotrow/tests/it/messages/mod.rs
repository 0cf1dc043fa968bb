//! Mistakes of users, and what each is answered: a table per kind of input. An answer names what is
//! wrong, the rule, and what to do.

mod file;
mod http;

use hotrow_testkit::harness::{Ended, SOON};

/// A mistake and a part of its answer.
pub(crate) type Mistake = (&'static str, &'static str);

/// Command lines and what standard error says; each exits with status 2.
const COMMAND_LINES: &[Mistake] = &[
    (
        "hotrow serve --demo --data foo",
        "hotrow serve: --data foo: must be an address and a port such as 127.0.0.1:8080",
    ),
    ("hotrow serve --demo --data foo", "; for example --data :8080"),
    ("hotrow serve --demo --data", "--data <ADDR> needs a value; for example --data :8080"),
    ("hotrow serve -c x", "there is no option -c; did you mean --config?"),
    ("hotrow serve --confg x", "there is no option --confg; did you mean --config?"),
    ("hotrow serve --demo --demo-writes=-1", "must be a whole number between 1 and 20000"),
    ("hotrow serve --demo --demo-writes x", "must be a whole number between 1 and 20000"),
    ("hotrow serve --demo --config hotrow.toml", "--demo cannot be used with --config <FILE>"),
    ("hotrow serve", "<URL|--config <FILE>|--demo> is missing"),
    ("hotrow check", "--config <FILE> is missing\nUsage: hotrow check [OPTIONS] --config <FILE>"),
    ("hotrow check hotrow.toml", "hotrow.toml is not expected here\nUsage: hotrow check [OPTIONS]"),
    ("hotrow load -c x http://a", "--connections x: must be a whole number; for example -c 100"),
    ("hotrow load -c 0 http://a", "--connections 0: must be a whole number of at least 1"),
    ("hotrow load --rate fast http://a", "for example --rate 20000\nHelp: hotrow load -h"),
    ("hotrow load --duraton 5s http://a", "there is no option --duraton; did you mean --duration?"),
    ("hotrow load --arrivals even --rate 1 http://a", "must be one of uniform, poisson"),
    ("hotrow verify --config f --keys 0", "--keys 0: must be a whole number from 1 to 1000000"),
    ("hotrow health --timeout 5", "must be a number with a unit: us, ms, s, m or h; for example"),
    ("hotrow chek", "hotrow: there is no command chek; did you mean check?\n  serve     serve, "),
    ("hotrow chek", "\n  tools     load, capacity, verify, lab\nHelp: hotrow -h"),
    ("hotrow load --pid x http://a", "--pid x: must be a whole number; for example --pid 4711"),
    ("hotrow lod", "there is no command lod; did you mean load?"),
    ("hotrow key nwe", "hotrow key: there is no command nwe; did you mean new?"),
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
