//! What packages contain: pages, completions, units, the user, the shipped configuration; and the
//! scripts that make them. Installing is checked by `scripts/test-packages` in `./test --long`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hotrow_testkit::harness::program;

/// Highest exposure that systemd-analyze may find, in tenths; it counts up to 100.
const EXPOSURE_TENTHS_MAX: &str = "20";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; ./test installs it"))
}

/// Runs a command, which must succeed and report nothing that `is_fine` does not know.
#[track_caller]
fn succeeds(command: &mut Command, is_fine: impl Fn(&str) -> bool) {
    let output = run(command);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let complaints: Vec<&str> = text.lines().filter(|line| !is_fine(line)).collect();
    assert!(output.status.success() && complaints.is_empty(), "{command:?}: {text}");
}

/// Writes the pages of a program into a folder.
fn pages(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(program(name));
    succeeds(command.args(["pages", "--date", "2026-01-31"]).arg(folder.path()), |_| false);
    folder
}

#[test]
fn every_command_has_a_valid_manual_page() {
    for name in ["hotrow", "hotrow-lab"] {
        let folder = pages(name);
        for page in fs::read_dir(folder.path().join("man1")).expect("a folder") {
            let page = page.expect("an entry").path();
            // Long lines are no fault of a page. Bare errors end with status 3 or more.
            succeeds(Command::new("mandoc").args(["-T", "lint", "-W", "error"]).arg(&page), |_| {
                false
            });
        }
    }
}

#[test]
fn completions_name_the_commands_and_options() {
    for (name, word, completed) in [
        ("hotrow", "unin", "uninstall-triggers"),
        ("hotrow", "heal", "health"),
        ("hotrow-lab", "polic", "policies"),
    ] {
        let folder = pages(name);
        let script = format!(
            ". completions/{name}.bash && complete -p {name} && COMP_WORDS=({name} {word}) \
             COMP_CWORD=1 && _{} {name} {word} {name} && echo \"= ${{COMPREPLY[*]}}\"",
            name.replace('-', "__")
        );
        let mut bash = Command::new("bash");
        let output = run(bash.args(["-euc", &script]).current_dir(folder.path()));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.ends_with(&format!("= {completed}\n")), "{output:?}");
        let zsh = folder.path().join(format!("completions/_{name}"));
        let zsh = fs::read_to_string(zsh).expect("completions for zsh");
        assert!(zsh.starts_with(&format!("#compdef {name}\n")) && zsh.contains(completed));
    }
}

fn unit_files() -> Vec<PathBuf> {
    let folder = |name| fs::read_dir(repository(name)).expect("a folder");
    let entries = folder("packaging/service").chain(folder("packaging/sockets"));
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Copies the units into a folder, with the built program in place of the installed one.
fn units() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let built = program("hotrow");
    let mut copies = Vec::new();
    for unit in unit_files() {
        let text = fs::read_to_string(&unit).expect("a unit");
        let copy = folder.path().join(unit.file_name().expect("a name"));
        let text = text.replace("/usr/bin/hotrow", built.to_str().expect("UTF-8"));
        fs::write(&copy, text).expect("writable");
        copies.push(copy);
    }
    assert_eq!(copies.len(), 3, "{copies:?}");
    (folder, copies)
}

#[test]
fn units_are_valid_and_confined() {
    let (_folder, units) = units();
    let mut verify = Command::new("systemd-analyze");
    // It may complain about other units of this machine.
    succeeds(verify.args(["verify", "--man=no"]).args(&units), |line| !line.contains("hotrow"));
    for unit in units.iter().filter(|unit| unit.extension().is_some_and(|e| e == "service")) {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=yes", "--threshold", EXPOSURE_TENTHS_MAX]).arg(unit);
        succeeds(&mut security, |_| true);
    }
}

/// Settings that would hide what shedding and the counts of clients read.
#[test]
fn confinement_leaves_the_probes_their_files() {
    let unit = fs::read_to_string(repository("packaging/service/hotrow.service")).expect("it");
    let settings: Vec<&str> = unit.lines().filter(|line| !line.starts_with('#')).collect();
    for (blinding, hidden) in [
        ("ProcSubset=pid", "/proc/meminfo"),
        ("PrivateUsers=", "user ids of clients on a Unix socket"),
        ("InaccessiblePaths=", "/proc/self/cgroup, /sys/fs/cgroup"),
    ] {
        assert!(!settings.iter().any(|line| line.starts_with(blinding)), "{blinding}: {hidden}");
    }
    assert!(settings.contains(&"RestartPreventExitStatus=2"), "a wrong file is no reason to retry");
}

#[test]
fn sockets_have_the_addresses_of_the_shipped_configuration() {
    let configuration = fs::read_to_string(repository("packaging/hotrow.toml")).expect("it");
    for name in ["data", "admin"] {
        let file = repository(&format!("packaging/sockets/hotrow-{name}.socket"));
        let unit = fs::read_to_string(file).expect("a unit");
        let address = unit.lines().find_map(|line| line.strip_prefix("ListenStream="));
        let setting = format!("\n{name} = \"{}\"\n", address.expect("an address"));
        assert!(configuration.contains(&setting), "{setting}");
        assert!(unit.contains(&format!("\nFileDescriptorName={name}\n")), "{unit}");
    }
}

#[test]
fn the_user_of_the_service_is_created() {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(root.path().join("etc")).expect("writable");
    let mut sysusers = Command::new("systemd-sysusers");
    sysusers.arg(format!("--root={}", root.path().display()));
    succeeds(sysusers.arg(repository("packaging/sysusers/hotrow.conf")), |_| true);
    let users = fs::read_to_string(root.path().join("etc/passwd")).expect("users");
    let is_it = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        fields[0] == "hotrow" && fields[5] == "/var/lib/hotrow" && fields[6].ends_with("/nologin")
    };
    assert!(users.lines().any(is_it), "{users}");
}

#[test]
fn the_shipped_configuration_is_valid_once_a_database_is_named() {
    let shipped = fs::read_to_string(repository("packaging/hotrow.toml")).expect("it");
    let check = |text: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        fs::write(&file, text).expect("writable");
        let mut command = Command::new(program("hotrow"));
        run(command.args(["check", "--offline", "--config"]).arg(&file).env("DB_PASSWORD", "x"))
    };
    let unnamed = check(&shipped);
    let error = String::from_utf8_lossy(&unnamed.stderr);
    assert_eq!(unnamed.status.code(), Some(2), "{error}");
    assert!(error.contains("source.url"), "{error}");
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some(setting) if setting.starts_with(['[', 'u']) => setting.to_owned(),
        _ => line.to_owned(),
    };
    let named: Vec<String> = shipped.lines().map(uncomment).collect();
    let named = check(&named.join("\n"));
    assert_eq!(named.status.code(), Some(0), "{named:?}");
}

#[test]
fn scripts_pass_shellcheck() {
    let mut scripts = vec![repository("test"), repository("hotrow"), repository(".ci/run")];
    for folder in ["scripts", "packaging/debian"] {
        for entry in fs::read_dir(repository(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            let first = text.lines().next().unwrap_or_default();
            if first.starts_with("#!") && (first.ends_with("sh")) {
                scripts.push(path);
            }
        }
    }
    assert!(scripts.len() > 6, "{scripts:?}");
    let mut shellcheck = Command::new("shellcheck");
    succeeds(shellcheck.args(["--severity=warning", "--external-sources"]).args(&scripts), |_| {
        false
    });
}
