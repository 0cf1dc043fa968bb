//! The supervisor: processes start inside their limits, are accounted with all descendants, and
//! never outlive the lab.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use hotrow_diagnose::cgroup;
use hotrow_diagnose::process::{self, Stat};
use hotrow_lab::stage::{
    Command, LOG_BYTES_MAX, Process, Stage, StageError, StopSignal, free_port,
};

/// Time limit of a wait.
const WAIT: Duration = Duration::from_secs(30);
/// Environment variable with the folder of a lab that a test kills.
const FOLDER: &str = "HOTROW_TEST_LAB_FOLDER";

/// A stage with a folder for its processes.
struct StageFixture {
    stage: Stage,
    folder: tempfile::TempDir,
}

impl StageFixture {
    fn new(options: &[&str]) -> Self {
        Self { stage: open(options), folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn command(&self, argv: &[&str]) -> Command {
        command(self.folder.path(), argv)
    }

    fn start(&mut self, argv: &[&str]) -> Process {
        let command = self.command(argv);
        self.stage.start(&command).expect("it starts")
    }

    fn shell(&mut self, script: &str) -> Process {
        self.start(&["sh", "-c", script])
    }

    fn refused(&mut self, command: &Command) -> String {
        self.stage.start(command).expect_err("it must not start").to_string()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("its log")
    }

    fn exited(&mut self, process: &Process) -> String {
        await_some("it exits", || self.stage.exited(process))
    }
}

fn open(options: &[&str]) -> Stage {
    let argv = [&[env!("CARGO_BIN_EXE_hotrow-lab"), "supervise"], options].concat();
    Stage::open(&argv.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        .expect("the supervisor starts")
}

fn command(folder: &Path, argv: &[&str]) -> Command {
    Command {
        name: "subject".to_owned(),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: vec![("SUBJECT".to_owned(), "as asked".to_owned())],
        dir: folder.to_owned(),
        log: folder.join("log"),
        cores: None,
    }
}

fn await_some<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + WAIT;
    loop {
        match probe() {
            Some(found) => return found,
            None if Instant::now() > until => panic!("{what}: not within {WAIT:?}"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    await_some(what, || holds().then_some(()));
}

fn is_alive(seen: &Stat) -> bool {
    let now = process::stat(Path::new("/proc"), seen.pid);
    now.is_ok_and(|now| now.began_ticks == seen.began_ticks && !now.ended())
}

fn kill(signal: &str, pid: u32) {
    let status = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

/// Returns the supervisor of a process, and all its descendants.
fn family(pid: u32) -> (u32, Vec<Stat>) {
    let all = process::all(Path::new("/proc")).expect("/proc");
    let supervisor = all.iter().find(|stat| stat.pid == pid).expect("a live process").parent;
    (supervisor, process::descendants(&all, supervisor).into_iter().cloned().collect())
}

/// Returns an nginx that daemonises itself, with two workers.
fn nginx(folder: &Path) -> Command {
    let port = free_port().expect("a free port");
    let configuration = format!(
        "worker_processes 2; pid nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).expect("its configuration");
    let folder_named = folder.to_str().expect("a plain name");
    Command {
        log: folder.join("nginx-log"),
        ..command(folder, &["nginx", "-p", folder_named, "-c", "nginx.conf"])
    }
}

const ORPHAN: &str = "(setsid sleep 1000 &) ; exec sleep 1000";

#[test]
fn a_process_has_its_environment_and_its_output_is_stored() {
    let mut fixture = StageFixture::new(&[]);
    let process = fixture.shell("echo $SUBJECT; pwd; cat; echo not well >&2; exit 3");
    assert_eq!(
        fixture.exited(&process).lines().next(),
        Some("exited with status 3; its last lines:")
    );
    let here = fixture.folder.path().canonicalize().unwrap();
    assert_eq!(fixture.log(), format!("as asked\n{}\nnot well\n", here.display()));
    assert!(fixture.exited(&process).ends_with("not well"));
    fixture.stage.stop(&process).unwrap();
    assert_eq!(fixture.stage.usage(&process).left_children, 0);
}

#[test]
fn start_errors_name_the_cause() {
    let mut fixture = StageFixture::new(&[]);
    let script = fixture.folder.path().join("script");
    std::fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    let plain = fixture.refused(&fixture.command(&["./script"]));
    assert!(
        plain.starts_with("subject cannot be started: program \"./script\" is not executable"),
        "{plain}"
    );
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        (fixture.command(&["./script"]), "exists, but the interpreter"),
        (
            fixture.command(&["no-such-program"]),
            "program \"no-such-program\" was not found in any folder of PATH",
        ),
        (fixture.command(&["/no/such"]), "program \"/no/such\" does not exist"),
        (fixture.command(&[]), "no program given"),
        (
            Command { dir: PathBuf::from("/no/such"), ..fixture.command(&["true"]) },
            "its folder /no/such does not exist",
        ),
        (
            Command { log: PathBuf::from("/no/such"), ..fixture.command(&["true"]) },
            "its log /no/such cannot be written",
        ),
        (
            Command { cores: Some(0.0), ..fixture.command(&["true"]) },
            "must be between 0.01 and 1024",
        ),
    ];
    for (command, reported) in cases {
        let error = fixture.refused(&command);
        assert!(error.contains(reported), "{error}");
    }
    let no_supervisor = Stage::open(&["/no/such".to_owned()]).unwrap_err().to_string();
    assert!(no_supervisor.contains("/no/such"), "{no_supervisor}");
    let no_answer = Stage::open(&["true".to_owned()]).unwrap_err();
    assert!(matches!(no_answer, StageError::SupervisorGone(_)), "{no_answer}");
}

#[test]
fn a_limit_covers_a_process_and_its_children() {
    let mut fixture = StageFixture::new(&[]);
    let limits = fixture.stage.limits().clone();
    let busy = ["sh", "-c", "while :; do :; done & while :; do :; done"];
    let limited = Command { cores: Some(0.2), ..fixture.command(&busy) };
    let process = fixture.stage.start(&limited).unwrap();
    if !limits.words.starts_with("cgroup") {
        assert!(
            limits.warning.is_some(),
            "no cgroup is writable here, and there is no warning: {limits:?}"
        );
        return;
    }
    assert_eq!(process.limit_cores, Some(0.2));
    // While the hypervisor has the CPU, periods without CPU time count as throttled, so it may get
    // less than its share.
    let mut shares = Vec::new();
    while !shares.iter().any(|share| *share >= 0.15) {
        let (share, periods, throttled) = two_seconds(&fixture.stage, &process);
        assert!(share <= 0.25, "{share} cores");
        assert!(periods > 50 && throttled > 0, "{throttled} of {periods}");
        shares.push(share);
        assert!(shares.len() < 10, "it never got its share: {shares:?} cores");
    }
}

/// Returns the folder of a process's CPU group, if it is one of ours.
fn cpu_group(pid: u32) -> Option<PathBuf> {
    let found = cgroup::hierarchies_of(Path::new("/"), &pid.to_string()).expect("its groups");
    let with_cpu = found.into_iter().filter(|h| h.controllers.iter().any(|name| name == "cpu"));
    with_cpu.map(|h| h.own).find(|own| own.to_string_lossy().contains("hotrow-lab-"))
}

fn weight_of(group: &Path) -> u64 {
    let file = ["cpu.shares", "cpu.weight"].map(|name| group.join(name));
    let text = file.iter().find_map(|file| std::fs::read_to_string(file).ok());
    text.expect("a group has a weight").trim().parse().expect("a number")
}

#[test]
fn weights_act_on_the_deployment_as_a_whole_and_on_the_generator() {
    let mut fixture = StageFixture::new(&[]);
    let mut generator = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let before = std::fs::read_to_string(format!("/proc/{}/cgroup", generator.id())).unwrap();
    let weights = fixture.stage.weigh(generator.id()).unwrap();
    let limited = Command { cores: Some(0.2), ..fixture.command(&["sleep", "1000"]) };
    let service = fixture.stage.start(&limited).unwrap();
    if weights.words.starts_with("deployment") && weights.warning.is_none() {
        let own = cpu_group(service.pid).expect("a group of its own");
        let deployment = own.parent().unwrap();
        let beside = cpu_group(generator.id()).expect("a group of its own");
        assert_eq!(beside.parent(), deployment.parent(), "weights act among siblings");
        let [most, quarter, one] = [deployment, &beside, &own].map(weight_of);
        assert!([262_144, 10_000].contains(&most), "{most}");
        assert_eq!((quarter, weights.words.contains(&most.to_string())), (most / 4, true));
        assert!(one < quarter, "a limit is a quota of the child, whose weight is the default");
        // Closing returns the generator to where it was.
        drop(fixture.stage);
        let after = std::fs::read_to_string(format!("/proc/{}/cgroup", generator.id())).unwrap();
        assert_eq!(after, before);
        assert!(!beside.exists() && !deployment.exists());
    } else {
        assert!(weights.warning.is_some(), "{weights:?}");
    }
    generator.kill().unwrap();
    generator.wait().unwrap();
}

#[test]
fn weights_that_cannot_be_set_are_a_warning() {
    let mut fixture = StageFixture::new(&["--no-cgroups"]);
    let weights = fixture.stage.weigh(std::process::id()).unwrap();
    assert!(weights.words.starts_with("not set: "), "{weights:?}");
    assert!(weights.warning.unwrap().contains("other processes of this machine can take CPU"));
}

/// Returns the cores used in two seconds, the periods, and the throttled periods.
fn two_seconds(stage: &Stage, process: &Process) -> (f64, u64, u64) {
    let began = Instant::now();
    let before = stage.usage(process);
    await_that("two seconds pass", || began.elapsed() >= Duration::from_secs(2));
    let after = stage.usage(process);
    let elapsed = began.elapsed();
    let share = (after.cpu - before.cpu).as_secs_f64() / elapsed.as_secs_f64();
    (share, after.periods - before.periods, after.throttled_periods - before.throttled_periods)
}

#[test]
fn without_cgroups_whole_cpus_are_the_limit() {
    let mut fixture = StageFixture::new(&["--no-cgroups"]);
    if !fixture.stage.limits().possible {
        assert!(fixture.stage.limits().words.starts_with("not possible: there is one CPU"));
        return;
    }
    assert_eq!(fixture.stage.limits().words, "pinned");
    let share =
        Command { cores: Some(0.3), ..fixture.command(&["sh", "-c", "nproc; exec sleep 1000"]) };
    let process = fixture.stage.start(&share).unwrap();
    assert_eq!(process.limit_cores, Some(1.0));
    await_that("it prints", || fixture.log() == "1\n");
}

#[test]
fn usage_of_ended_descendants_is_counted() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut fixture = StageFixture::new(options);
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo worked";
        // A child that is reaped by its parent; then one that the supervisor adopts, because its
        // parent ends at once.
        let child = fixture.shell(&format!("({work}); exec sleep 1000"));
        await_that("it works", || fixture.log() == "worked\n");
        let adopted = fixture.shell(&format!("({work}) & exit 0"));
        await_that("it works", || fixture.log() == "worked\n");
        await_that("it has ended", || fixture.stage.usage(&adopted).left_children == 0);
        for process in [&child, &adopted] {
            assert!(
                fixture.stage.usage(process).cpu >= Duration::from_millis(30),
                "{options:?}: {process:?}"
            );
            fixture.stage.stop(process).unwrap();
            assert!(
                fixture.stage.usage(process).cpu >= Duration::from_millis(30),
                "{options:?}: after its end"
            );
        }
    }
}

#[test]
fn remaining_children_are_reported_and_ended() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut fixture = StageFixture::new(options);
        let orphan = "setsid sh -c 'echo $$ >new; mv new pid; exec sleep 1000' &";
        let process = fixture.shell(&format!(
            "{orphan} while [ ! -e pid ]; do sleep 0.01; done; echo early; exit 1"
        ));
        let reported = fixture.exited(&process);
        assert_eq!(reported, "exited with status 1; its last lines:\nearly");
        let pid = std::fs::read_to_string(fixture.folder.path().join("pid")).unwrap();
        let sleeper = process::stat(Path::new("/proc"), pid.trim().parse().unwrap()).unwrap();
        assert!(is_alive(&sleeper));
        assert_eq!(fixture.stage.usage(&process).left_children, 1, "{options:?}");
        fixture.stage.stop(&process).unwrap();
        assert!(!is_alive(&sleeper), "{options:?}");
        assert_eq!(fixture.stage.usage(&process).left_children, 1, "{options:?}");
        fixture.stage.stop(&process).unwrap();
    }
}

#[test]
fn the_stop_signal_is_configurable_and_ignoring_it_leads_to_sigkill() {
    let mut fixture = StageFixture::new(&[]);
    let obedient = fixture.shell(
        "trap 'echo quit; exit 0' QUIT; trap '' TERM; echo ready; while :; do sleep 0.01; done",
    );
    await_that("it is ready", || fixture.log() == "ready\n");
    fixture.stage.stop_with(&obedient, StopSignal::Quit).unwrap();
    assert_eq!(fixture.exited(&obedient), "exited with status 0; its last lines:\nready\nquit");
    let ignoring = fixture.shell("trap '' TERM; echo ignoring; while :; do sleep 1; done");
    await_that("it is ready", || fixture.log() == "ignoring\n");
    fixture.stage.stop(&ignoring).unwrap();
    assert_eq!(fixture.exited(&ignoring), "killed by signal 9; its last lines:\nignoring");
}

#[test]
fn a_log_is_bounded() {
    let mut fixture = StageFixture::new(&[]);
    let flood = fixture.shell("head -c 20000000 /dev/zero; echo; echo the end");
    let reported = fixture.exited(&flood);
    assert!(reported.ends_with("\nthe end"), "{}", &reported[reported.len().saturating_sub(100)..]);
    let length = std::fs::metadata(fixture.folder.path().join("log")).unwrap().len();
    assert!((LOG_BYTES_MAX..LOG_BYTES_MAX + 200).contains(&length), "{length} bytes");
    assert!(
        fixture.log().ends_with(
            "(hotrow: this log is limited to 16777216 bytes; further output is dropped)\n"
        )
    );
}

#[test]
fn nothing_survives_the_stage() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut fixture = StageFixture::new(options);
        let process = fixture.shell(ORPHAN);
        let (_, family) = await_some("the orphan runs", || {
            Some(family(process.pid)).filter(|(_, all)| all.len() == 2)
        });
        drop(fixture.stage);
        assert!(!family.iter().any(is_alive), "{options:?}: {family:?}");
    }
}

#[test]
fn a_constantly_forking_process_does_not_escape() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut fixture = StageFixture::new(options);
        let name = fixture.folder.path().to_str().unwrap().to_owned();
        let process =
            fixture.shell(&format!("next() {{ sleep 0.01; echo on; (next &); }}; next # {name}"));
        await_that("it goes on", || fixture.log().len() > 20);
        if fixture.stage.limits().words.starts_with("cgroup") {
            fixture.stage.stop(&process).unwrap();
            assert_eq!(with_command_line(&name), Vec::<u32>::new());
        }
        drop(fixture.stage);
        assert_eq!(with_command_line(&name), Vec::<u32>::new());
    }
}

/// Returns the processes whose command line contains a text; a shell's forks share its command
/// line.
fn with_command_line(text: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    process::all(Path::new("/proc"))
        .expect("/proc")
        .into_iter()
        .map(|stat| stat.pid)
        .filter(holds)
        .collect()
}

/// The lab that `nothing_survives_a_lab_that_is_killed` starts and kills.
#[test]
#[ignore = "waits to be killed by another test"]
fn a_lab_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        panic!("only another test starts this one");
    };
    let mut stage = open(&[]);
    let process = stage.start(&command(&folder, &["sh", "-c", ORPHAN])).expect("it starts");
    stage.start(&nginx(&folder)).expect("it starts");
    await_that("nginx runs", || folder.join("nginx.pid").exists());
    std::fs::write(folder.join("new"), process.pid.to_string()).expect("written");
    std::fs::rename(folder.join("new"), folder.join("ready")).expect("renamed");
    loop {
        std::thread::park();
    }
}

/// Starts the lab to be killed; returns it with its supervisor and all its descendants.
fn lab_to_be_killed(folder: &Path) -> (Child, u32, Vec<Stat>) {
    let mut lab = std::process::Command::new(std::env::current_exe().expect("this program"));
    lab.args(["--exact", "stage::a_lab_to_be_killed", "--ignored"]).env(FOLDER, folder);
    let lab = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let ready =
        await_some("the lab is ready", || std::fs::read_to_string(folder.join("ready")).ok());
    let pid = ready.parse().expect("a process id");
    // A sleep executed by a shell, its orphan, and nginx: a master and two workers, all orphans.
    let complete = |all: &[Stat]| {
        let count = |name| all.iter().filter(|stat| stat.name == name && !stat.ended()).count();
        count("sleep") == 2 && count("nginx") == 3
    };
    let (supervisor, family) =
        await_some("all run", || Some(family(pid)).filter(|(_, all)| complete(all)));
    (lab, supervisor, family.into_iter().filter(|stat| !stat.ended()).collect())
}

#[test]
fn nothing_survives_a_lab_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut lab, supervisor, family) = lab_to_be_killed(folder.path());
    let seen = process::stat(Path::new("/proc"), supervisor).unwrap();
    lab.kill().unwrap();
    lab.wait().unwrap();
    await_that("all have ended", || !family.iter().any(is_alive) && !is_alive(&seen));
}

#[test]
fn a_killed_supervisor_is_reported_and_its_processes_end() {
    let mut fixture = StageFixture::new(&[]);
    let grouped = fixture.stage.limits().words.starts_with("cgroup");
    let process = fixture.shell(ORPHAN);
    let (supervisor, family) = await_some("the orphan runs", || {
        Some(family(process.pid)).filter(|(_, all)| all.len() == 2)
    });
    kill("-KILL", supervisor);
    let error = fixture.stage.start(&fixture.command(&["true"])).unwrap_err();
    assert!(matches!(error, StageError::SupervisorGone(_)), "{error}");
    assert!(fixture.stage.exited(&process).is_some_and(|reported| reported.contains("has exited")));
    // Without groups only the process itself ends with its supervisor.
    let ends = |seen: &Stat| grouped || seen.pid == process.pid;
    await_that("all have ended", || !family.iter().filter(|seen| ends(seen)).any(is_alive));
}

#[test]
fn a_supervisor_ends_everything_on_a_signal() {
    let mut fixture = StageFixture::new(&["--no-cgroups"]);
    let process = fixture.shell(ORPHAN);
    let (supervisor, family) = await_some("the orphan runs", || {
        Some(family(process.pid)).filter(|(_, all)| all.len() == 2)
    });
    kill("-TERM", supervisor);
    await_that("all have ended", || !family.iter().any(is_alive));
}
