//! No test depends on how fast the machine is. None sizes its work by measuring the machine: on a
//! faster or a busier one it becomes another test, or none; slowness comes from a failpoint, a lock
//! or a fake server. None expects a line of the log at once: the log has a thread of its own.

use crate::tree::{Tree, crate_of, has_word, is_test_cfg, without_comments};
use crate::{assert_complains, assert_silent};

/// Refuses a test function that reads a stopwatch (`elapsed()`) and also grows an amount by a share
/// or a multiple of itself: `x *= …`, `x <<= …`, `x += … x …`, `x = x * …`, `x = x << …`. Counters
/// (`x += 1`) and deadlines are allowed. Both halves must be in the same function.
pub(crate) fn calibration(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| crate_of(path).is_some()) {
        // Contains samples of refused code.
        if path == "crates/hotrow/tests/tidy/calibration.rs" {
            continue;
        }
        for function in functions(&test_code(path, text)) {
            let grown =
                if has_word(function, "elapsed") { grows_by_itself(function) } else { None };
            if let Some(amount) = grown {
                let name = function.split_once("fn ").map_or("", |(_, rest)| rest);
                let name = name.split(['(', '<']).next().unwrap_or_default();
                complaints.push(format!(
                    "{path}: `{name}` measures time and lets `{amount}` grow by itself; \
                     make the work slow by a failpoint instead of sizing it by the clock"
                ));
            }
        }
    }
    complaints
}

/// Refuses `assert!(server.log().contains(…` in integration tests: whatever was seen by another way
/// may be there before its line. That a line is absent may be asserted.
pub(crate) fn log_lines(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/hotrow/tests/it")) {
        let code: String = without_comments(text).split_whitespace().collect();
        for (at, _) in code.match_indices(".log().contains(") {
            let name_at = code[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_');
            if name_at.is_some_and(|at| code[..=at].ends_with("assert!(")) {
                let expected: String = code[at..].chars().skip(16).take(40).collect();
                complaints.push(format!(
                    "{path}: asserts that the log has {expected} already; use `await_log`"
                ));
            }
        }
    }
    complaints
}

/// Returns the part of a file that is compiled for tests only, without comments.
fn test_code(path: &str, text: &str) -> String {
    let code = without_comments(text);
    if path.contains("/tests/") || path.ends_with("/tests.rs") {
        return code;
    }
    let lines: Vec<&str> = code.lines().skip_while(|line| !is_test_cfg(line)).collect();
    lines.join("\n")
}

/// Splits code into functions with their bodies; assumes formatted code.
fn functions(code: &str) -> Vec<&str> {
    let mut functions = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let is_function = trimmed.starts_with("fn ")
            || ["pub", "async", "const"].iter().any(|word| trimmed.starts_with(word))
                && trimmed.contains(" fn ");
        if is_function {
            let indent = line.len() - trimmed.len();
            let closing = format!("\n{}}}\n", " ".repeat(indent));
            let end = code[at..].find(&closing).map_or(code.len(), |end| at + end);
            functions.push(&code[at..end]);
        }
        at += line.len();
    }
    functions
}

/// Returns the first amount that is increased by a share or a multiple of itself.
fn grows_by_itself(function: &str) -> Option<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in function.match_indices(" = ").chain(function.match_indices("= ")) {
        let before = &function[..at];
        let value = function[at..].trim_start_matches([' ', '=']);
        let before = before.trim_end();
        let operator = ["+", "*", "<<"].into_iter().find(|operator| before.ends_with(operator));
        let target = before.trim_end_matches(operator.unwrap_or_default()).trim_end();
        let name_length = target.len() - target.trim_end_matches(is_name).len();
        let name = &target[target.len() - name_length..];
        let value = value.split(';').next().unwrap_or_default();
        let is_let = target[..target.len() - name_length].ends_with(['t', ':', '(']);
        if name.is_empty() || is_let || name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let multiplies = || {
            let forms = [format!("{name} * "), format!("{name} << "), format!("* {name}")];
            forms
                .iter()
                .any(|form| value.starts_with(form.as_str()) || value.ends_with(form.as_str()))
        };
        let grows = match operator {
            Some("+") => has_word(value, name),
            Some(_) => true,
            None => multiplies(),
        };
        if grows {
            return Some(name);
        }
    }
    None
}

#[test]
fn calibration_complains() {
    let doubled = "pub fn add_slow_table(least: Duration) {\n    let mut work = 1;\n    \
        while took < least {\n        \
        work += if took < least / 4 { work } else { work / 3 };\n        \
        took = begun.elapsed();\n    }\n}\n";
    let measured = "fn add_heavy_table(each: Duration) {\n    \
        let took = |work: u32| begun.elapsed();\n    \
        while took(work) < each {\n        work += work / 4;\n    }\n}\n";
    assert_complains(
        calibration,
        &[("crates/a/tests/a.rs", doubled)],
        "`add_slow_table` measures time and lets `work`",
    );
    assert_complains(calibration, &[("crates/a/tests/b/c.rs", measured)], "`add_heavy_table`");
    for grown in ["n *= 2", "n <<= 1", "n = n * 2", "n = n << 1", "n = 2 * n", "n += n"] {
        let text = format!(
            "#[cfg(test)]\nmod tests {{\n    fn f() {{\n        {grown};\n        \
             t.elapsed();\n    }}\n}}\n"
        );
        assert_complains(
            calibration,
            &[("crates/a/src/a.rs", &text)],
            "`f` measures time and lets `n`",
        );
        let produced = text.replace("#[cfg(test)]\n", "");
        assert_silent(calibration, &[("crates/a/src/a.rs", &produced)]);
    }
    for fine in [
        "fn f() {\n    while t.elapsed() < LONG {\n        n += 1;\n    }\n}\n",
        "fn f() {\n    sum += n * 2;\n    let n = 2 * m;\n    t.elapsed();\n}\n",
        "fn f() {\n    pause *= 2;\n}\nfn g() {\n    t.elapsed();\n}\n",
        "fn f() {\n    // n *= 2;\n    assert!(t.elapsed() <= 2 * n && n <= 2);\n    \
         assert!(n >= n * 2);\n}\n",
    ] {
        assert_silent(calibration, &[("crates/a/tests/a.rs", fine)]);
    }
}

#[test]
fn log_lines_complain() {
    let at = "crates/hotrow/tests/it/a.rs";
    for refused in [
        "fn f() {\n    assert!(server.log().contains(\"late\"), \"{}\", server.log());\n}\n",
        "fn f() {\n    assert!(\n        a.log().contains(x)\n    );\n}\n",
    ] {
        assert_complains(log_lines, &[(at, refused)], "use `await_log`");
    }
    for fine in [
        "fn f() {\n    assert!(!server.log().contains(\"secret\"));\n}\n",
        "fn f() {\n    server.await_log(\"late\");\n    // assert!(server.log().contains(x))\n}\n",
        "fn f() {\n    until(|| server.log().contains(\"late\"));\n}\n",
    ] {
        assert_silent(log_lines, &[(at, fine)]);
    }
}
