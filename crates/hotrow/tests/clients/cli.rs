//! Command line of the real binary: its outputs and exit statuses.

use std::path::Path;
use std::process::Command;

use hotrow_testkit::harness::{Ended, SOON};
use hotrow_testkit::process::{copy_program, write_script};

/// Returns status, standard output and standard error.
fn outcome(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ended = Ended::run(arguments, SOON);
    (Some(ended.code()), ended.output, ended.log)
}

fn config_file(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("hotrow.toml");
    std::fs::write(&path, text).expect("writable");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_good_configuration_is_fine() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = config_file(
        &folder,
        "[source]\nurl = 'sqlite:shop.db'\n[collections.b]\n[collections.a]\n",
    );
    let (status, out, err) = outcome(&["check", "--offline", "--config", &file]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let fine = "the file is fine; the database was not";
    assert_eq!(out, format!("{file}: {fine} asked; 2 collections (a, b) from shop.db\n"));
    let (status, out, err) = outcome(&["check", "--config", &file]);
    assert_eq!((status, out.as_str()), (Some(3), ""));
    let missing = "the database file shop.db does not exist";
    assert!(err.starts_with(&format!("{file}: {fine} reached: {missing}")), "{err}");
}

#[test]
fn a_warning_is_no_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = config_file(
        &folder,
        "listen.admin = '0.0.0.0:8081'\nsource.url = 'sqlite:x'\n[collections.a]\n",
    );
    let (status, _, err) = outcome(&["check", "--offline", "--config", &file]);
    assert_eq!(status, Some(0));
    assert!(
        err.contains("warning: the admin address 0.0.0.0:8081") && err.contains("admin.token"),
        "{err}"
    );
}

#[test]
fn a_bad_configuration_is_wrong_usage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = config_file(
        &folder,
        "[source]\nurl = 'sqlite:${HOTROW_UNSET}'\n[cache]\ncapasity = '1GiB'\n[collections.a]\n",
    );
    for command in ["check", "serve", "uninstall-triggers"] {
        let (status, out, err) = outcome(&[command, "--config", &file]);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{command}: {err}");
        let lines: Vec<&str> = err.lines().collect();
        assert_eq!(lines.len(), 2, "{err}");
        assert!(
            lines[0].starts_with(&format!(
                "{file}:2: source.url: the environment variable HOTROW_UNSET is not set"
            )),
            "{err}"
        );
        assert_eq!(
            lines[1],
            format!("{file}:4: cache.capasity: unknown key; did you mean capacity?")
        );
    }
    let (status, _, err) = outcome(&["check", "--config", "/nonexistent/hotrow.toml"]);
    assert_eq!(status, Some(2));
    assert!(err.starts_with("/nonexistent/hotrow.toml: cannot be read: No such file"), "{err}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (status, out, _) = outcome(&["--version"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((status, lines.len()), (Some(0), 3), "{out}");
    assert_eq!(lines[0], format!("hotrow {}", env!("CARGO_PKG_VERSION")));
    assert!(
        lines[1].starts_with("commit: ") && lines[2].starts_with("features: hub, mongodb, mysql")
    );
    assert_eq!(outcome(&["version"]).1, out);
    let (status, short, _) = outcome(&["-V"]);
    assert_eq!((status, short), (Some(0), format!("{}\n", lines[0])));
    for help in [&["serve", "--help"][..], &["help", "serve"]] {
        let (status, out, _) = outcome(help);
        assert!(status == Some(0) && out.contains("  hotrow serve --demo\n"), "{out}");
    }
    let (status, out, err) = outcome(&[]);
    assert!((status, out.as_str()) == (Some(2), "") && err.contains("Usage:"), "{err}");
}

#[test]
fn a_closed_output_is_no_crash() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = config_file(&folder, "source.url = 'sqlite:x'\n[collections.a]\n");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
    let status = command
        .args(["check", "--offline", "--config", &file])
        .stdout(full())
        .stderr(full())
        .status()
        .expect("it starts");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    for args in [["lab", "list", "w1"], ["lab", "nginx", "--for=w12"], ["lab", "models", "--list"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
        let output = command.args(args).stdout(full).output().expect("it starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(
            err.starts_with("hotrow-lab: standard output cannot be written: No space left"),
            "{args:?}: {err}"
        );
    }
}

/// A copy of the program in a folder without `hotrow-lab`.
fn program_alone() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("hotrow");
    copy_program(Path::new(env!("CARGO_BIN_EXE_hotrow")), &program);
    (folder, program)
}

#[test]
fn without_the_workshop_its_commands_say_how_to_get_it() {
    let (folder, program) = program_alone();
    // One on the path may be another version.
    let path = folder.path().join("path");
    std::fs::create_dir(&path).expect("a folder");
    write_script(&path.join("hotrow-lab"), "#!/bin/sh\nexit 0\n");
    for command in ["lab", "load", "capacity", "verify", "top", "doctor"] {
        let output =
            Command::new(&program).arg(command).env("PATH", &path).output().expect("it starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        let expected = "/hotrow-lab does not exist; install the package hotrow-lab";
        assert!(err.contains(expected) && err.contains("cargo build"), "{err}");
    }
}

#[test]
fn the_workshop_gets_all_arguments_and_its_status_is_kept() {
    let (folder, program) = program_alone();
    write_script(&folder.path().join("hotrow-lab"), "#!/bin/sh\necho \"$@\"\nexit 7\n");
    for (arguments, passed) in [
        (&["lab", "run", "--rounds", "5", "a b"][..], "run --rounds 5 a b"),
        (&["load", "--help"], "load --help"),
        (&["verify", "-d", "--", "-x"], "verify -d -- -x"),
    ] {
        let output = Command::new(&program).args(arguments).output().expect("it starts");
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), out.trim_end()), (Some(7), passed));
    }
}

#[test]
fn the_workshop_of_another_commit_is_refused() {
    let program = Path::new(env!("CARGO_BIN_EXE_hotrow")).with_file_name("hotrow-lab");
    let output = Command::new(program)
        .args(["doctor", "--json"])
        .env("HOTROW_STARTED_BY", "0.1.0 0123abc")
        .output()
        .expect("hotrow-lab is built with the workspace");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("hotrow 0.1.0 0123abc has started it") && err.lines().count() == 1,
        "{err}"
    );
}
