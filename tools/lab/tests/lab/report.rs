//! The commands `hotrow-lab report` and `hotrow-lab compare`.

use std::path::Path;
use std::process::Command;

use hotrow_results as results;

#[path = "../../src/report/tests/fixture.rs"]
mod fixture;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hotrow-lab")).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn keep(folder: &Path, results: &results::Results) {
    let text = serde_json::to_string(results).expect("plain data");
    std::fs::write(folder.join(results::FILE), text).expect("written");
}

#[test]
fn a_report_is_written_again_and_its_answer_printed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().to_str().expect("UTF-8");
    keep(folder.path(), &fixture::odd_results());
    let (status, out, err) = lab(&["report", dir]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(
        out.starts_with("Caching for one second makes the date at most 1")
            && out.contains("report.html"),
        "{out}"
    );
    for name in ["report.md", "report.html"] {
        let text = std::fs::read_to_string(folder.path().join(name)).expect("it was written");
        assert!(text.contains("this run is not complete") && text.contains("FAILED"), "{text}");
    }
    let (status, out, err) = lab(&["report", "/nonexistent"]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("hotrow-lab: /nonexistent/results.json cannot be read"), "{err}");
}

#[test]
fn two_runs_are_compared_as_text_and_as_a_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let mut other = fixture::results(5);
    for (name, results) in [("a", fixture::results(5)), ("b", other.clone())] {
        std::fs::create_dir(at(name)).expect("a folder");
        keep(Path::new(&at(name)), &results);
    }
    let (status, out, err) = lab(&["compare", &at("a"), &at("b"), "--html", &at("page.html")]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(
        out.contains("No difference is shown in 20 rows.") && out.contains("B over A"),
        "{out}"
    );
    assert!(
        std::fs::read_to_string(at("page.html"))
            .expect("a page")
            .contains("No difference is shown in 20 rows.")
    );
    other.experiment.name = "w1".to_owned();
    keep(Path::new(&at("b")), &other);
    let (status, out, err) = lab(&["compare", &at("a"), &at("b")]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(
        err.contains("\"w12\" and B one of \"w1\"; compare runs of the same experiment"),
        "{err}"
    );
}
