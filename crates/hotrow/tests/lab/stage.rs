//! The supervisor: processes start inside their limits, are counted with all their descendants, and nothing of them
//! survives, whatever happens to the lab.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use hotrow_diagnose::process::{self, Stat};
use hotrow_lab::stage::{Command, LOG_BYTES_MAX, Process, Stage, StageError, StopSignal, free_port};

/// Longest wait for what must happen.
const WAIT: Duration = Duration::from_secs(30);
/// Names the folder of a lab that a test kills.
const FOLDER: &str = "HOTROW_TEST_LAB_FOLDER";

/// A stage, with a folder for what its processes write.
struct Scene {
    stage: Stage,
    folder: tempfile::TempDir,
}

impl Scene {
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
    let argv = [&[env!("CARGO_BIN_EXE_hotrow"), "lab", "supervise"], options].concat();
    Stage::open(&argv.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).expect("the supervisor starts")
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

fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + WAIT;
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > until => panic!("{what}: not within {WAIT:?}"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    await_some(what, || holds().then_some(()));
}

fn lives(seen: &Stat) -> bool {
    let now = process::stat(Path::new("/proc"), seen.pid);
    now.is_ok_and(|now| now.began_ticks == seen.began_ticks && !now.ended())
}

fn kill(signal: &str, pid: u32) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// The supervisor of a process, and all that descends from it.
fn family(pid: u32) -> (u32, Vec<Stat>) {
    let all = process::all(Path::new("/proc")).expect("/proc");
    let supervisor = all.iter().find(|stat| stat.pid == pid).expect("it lives").parent;
    (supervisor, process::descendants(&all, supervisor).into_iter().cloned().collect())
}

/// An nginx that goes into the background by itself, with two workers.
fn nginx(folder: &Path) -> Command {
    let port = free_port().expect("a free port");
    let configuration = format!(
        "worker_processes 2; pid nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).expect("its configuration");
    let folder_named = folder.to_str().expect("a plain name");
    Command { log: folder.join("nginx-log"), ..command(folder, &["nginx", "-p", folder_named, "-c", "nginx.conf"]) }
}

const ORPHAN: &str = "(setsid sleep 1000 &) ; exec sleep 1000";

#[test]
fn a_process_gets_what_it_was_given_and_its_output_is_kept() {
    let mut scene = Scene::new(&[]);
    let process = scene.shell("echo $SUBJECT; pwd; cat; echo not well >&2; exit 3");
    assert_eq!(scene.exited(&process).lines().next(), Some("exited with status 3; its last lines:"));
    let here = scene.folder.path().canonicalize().unwrap();
    assert_eq!(scene.log(), format!("as asked\n{}\nnot well\n", here.display()));
    assert!(scene.exited(&process).ends_with("not well"));
    scene.stage.stop(&process).unwrap();
    assert_eq!(scene.stage.usage(&process).left_children, 0);
}

#[test]
fn what_cannot_start_is_named() {
    let mut scene = Scene::new(&[]);
    let script = scene.folder.path().join("script");
    std::fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    let plain = scene.refused(&scene.command(&["./script"]));
    assert!(plain.starts_with("subject cannot be started: program \"./script\" may not be executed"), "{plain}");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        (scene.command(&["./script"]), "exists, but the interpreter"),
        (scene.command(&["no-such-program"]), "program \"no-such-program\" was not found in any folder of PATH"),
        (scene.command(&["/no/such"]), "program \"/no/such\" does not exist"),
        (scene.command(&[]), "no program is named"),
        (Command { dir: PathBuf::from("/no/such"), ..scene.command(&["true"]) }, "its folder /no/such does not exist"),
        (Command { log: PathBuf::from("/no/such"), ..scene.command(&["true"]) }, "its log /no/such cannot be written"),
        (Command { cores: Some(0.0), ..scene.command(&["true"]) }, "must lie between 0.01 and 1024"),
    ];
    for (command, told) in cases {
        let error = scene.refused(&command);
        assert!(error.contains(told), "{error}");
    }
    let no_supervisor = Stage::open(&["/no/such".to_owned()]).unwrap_err().to_string();
    assert!(no_supervisor.contains("/no/such"), "{no_supervisor}");
    let no_answer = Stage::open(&["true".to_owned()]).unwrap_err();
    assert!(matches!(no_answer, StageError::SupervisorGone(_)), "{no_answer}");
}

#[test]
fn a_limit_holds_for_a_process_and_its_children_together() {
    let mut scene = Scene::new(&[]);
    let limits = scene.stage.limits().clone();
    let busy = ["sh", "-c", "while :; do :; done & while :; do :; done"];
    let limited = Command { cores: Some(0.2), ..scene.command(&busy) };
    let process = scene.stage.start(&limited).unwrap();
    if !limits.words.starts_with("cgroup") {
        assert!(limits.remark.is_some(), "no cgroup may be written here, and nobody was told: {limits:?}");
        return;
    }
    assert_eq!(process.limit_cores, Some(0.2));
    // While the hypervisor has the CPU, periods pass in which it gets nothing and counts as held up: it need not get its share each time.
    let mut shares = Vec::new();
    while !shares.iter().any(|share| *share >= 0.15) {
        let (share, periods, throttled) = two_seconds(&scene.stage, &process);
        assert!(share <= 0.25, "{share} cores");
        assert!(periods > 50 && throttled > 0, "{throttled} of {periods}");
        shares.push(share);
        assert!(shares.len() < 10, "it never got what it may have: {shares:?} cores");
    }
}

/// What a process uses in that time, in cores, and of how many periods it was held up in how many.
fn two_seconds(stage: &Stage, process: &Process) -> (f64, u64, u64) {
    let (began, before) = (Instant::now(), stage.usage(process));
    await_that("two seconds pass", || began.elapsed() >= Duration::from_secs(2));
    let (after, elapsed) = (stage.usage(process), began.elapsed());
    let share = (after.cpu - before.cpu).as_secs_f64() / elapsed.as_secs_f64();
    (share, after.periods - before.periods, after.throttled_periods - before.throttled_periods)
}

#[test]
fn without_cgroups_whole_cpus_are_the_limit() {
    let mut scene = Scene::new(&["--no-cgroups"]);
    if !scene.stage.limits().possible {
        assert!(scene.stage.limits().words.starts_with("not possible: there is one CPU"));
        return;
    }
    assert_eq!(scene.stage.limits().words, "pinned");
    let share = Command { cores: Some(0.3), ..scene.command(&["sh", "-c", "nproc; exec sleep 1000"]) };
    let process = scene.stage.start(&share).unwrap();
    assert_eq!(process.limit_cores, Some(1.0));
    await_that("it prints", || scene.log() == "1\n");
}

#[test]
fn what_descendants_used_is_counted_even_when_they_are_gone() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut scene = Scene::new(options);
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo worked";
        // A child that is waited for; then one that the supervisor adopts, for its parent ends at once.
        let child = scene.shell(&format!("({work}); exec sleep 1000"));
        await_that("it works", || scene.log() == "worked\n");
        let adopted = scene.shell(&format!("({work}) & exit 0"));
        await_that("it works", || scene.log() == "worked\n");
        await_that("it has ended", || scene.stage.usage(&adopted).left_children == 0);
        for process in [&child, &adopted] {
            assert!(scene.stage.usage(process).cpu >= Duration::from_millis(30), "{options:?}: {process:?}");
            scene.stage.stop(process).unwrap();
            assert!(scene.stage.usage(process).cpu >= Duration::from_millis(30), "{options:?}: after its end");
        }
    }
}

#[test]
fn children_that_are_left_behind_are_told_and_ended() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut scene = Scene::new(options);
        let orphan = "setsid sh -c 'echo $$ >new; mv new pid; exec sleep 1000' &";
        let process = scene.shell(&format!("{orphan} while [ ! -e pid ]; do sleep 0.01; done; echo early; exit 1"));
        let told = scene.exited(&process);
        assert_eq!(told, "exited with status 1; its last lines:\nearly");
        let pid = std::fs::read_to_string(scene.folder.path().join("pid")).unwrap();
        let sleeper = process::stat(Path::new("/proc"), pid.trim().parse().unwrap()).unwrap();
        assert!(lives(&sleeper));
        assert_eq!(scene.stage.usage(&process).left_children, 1, "{options:?}");
        scene.stage.stop(&process).unwrap();
        assert!(!lives(&sleeper), "{options:?}");
        assert_eq!(scene.stage.usage(&process).left_children, 1, "{options:?}");
        scene.stage.stop(&process).unwrap();
    }
}

#[test]
fn what_ignores_the_signal_is_killed_and_what_wants_another_gets_it() {
    let mut scene = Scene::new(&[]);
    let polite = scene.shell("trap 'echo quit; exit 0' QUIT; trap '' TERM; echo ready; while :; do sleep 0.01; done");
    await_that("it is ready", || scene.log() == "ready\n");
    scene.stage.stop_with(&polite, StopSignal::Quit).unwrap();
    assert_eq!(scene.exited(&polite), "exited with status 0; its last lines:\nready\nquit");
    let deaf = scene.shell("trap '' TERM; echo deaf; while :; do sleep 1; done");
    await_that("it is ready", || scene.log() == "deaf\n");
    scene.stage.stop(&deaf).unwrap();
    assert_eq!(scene.exited(&deaf), "killed by signal 9; its last lines:\ndeaf");
}

#[test]
fn a_log_does_not_fill_the_disk() {
    let mut scene = Scene::new(&[]);
    let flood = scene.shell("head -c 20000000 /dev/zero; echo; echo the end");
    let told = scene.exited(&flood);
    assert!(told.ends_with("\nthe end"), "{}", &told[told.len().saturating_sub(100)..]);
    let length = std::fs::metadata(scene.folder.path().join("log")).unwrap().len();
    assert!((LOG_BYTES_MAX..LOG_BYTES_MAX + 200).contains(&length), "{length} bytes");
    assert!(scene.log().ends_with("(hotrow: this log is full with 16777216 bytes; what follows is dropped)\n"));
}

#[test]
fn nothing_survives_the_stage() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut scene = Scene::new(options);
        let process = scene.shell(ORPHAN);
        let (_, family) = await_some("the orphan runs", || Some(family(process.pid)).filter(|(_, all)| all.len() == 2));
        drop(scene.stage);
        assert!(!family.iter().any(lives), "{options:?}: {family:?}");
    }
}

#[test]
fn what_forks_and_ends_all_the_time_does_not_get_away() {
    for options in [&[][..], &["--no-cgroups"]] {
        let mut scene = Scene::new(options);
        let name = scene.folder.path().to_str().unwrap().to_owned();
        let process = scene.shell(&format!("next() {{ sleep 0.01; echo on; (next &); }}; next # {name}"));
        await_that("it goes on", || scene.log().len() > 20);
        if scene.stage.limits().words.starts_with("cgroup") {
            scene.stage.stop(&process).unwrap();
            assert_eq!(with_command_line(&name), Vec::<u32>::new());
        }
        drop(scene.stage);
        assert_eq!(with_command_line(&name), Vec::<u32>::new());
    }
}

/// The processes whose command line contains a text; a shell's forks have that of the shell.
fn with_command_line(text: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    process::all(Path::new("/proc")).expect("/proc").into_iter().map(|stat| stat.pid).filter(holds).collect()
}

/// What `nothing_survives_a_lab_that_is_killed` starts, and kills.
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

/// Starts the lab that is to be killed; the supervisor, and the family that runs under it.
fn lab_to_be_killed(folder: &Path) -> (Child, u32, Vec<Stat>) {
    let mut lab = std::process::Command::new(std::env::current_exe().expect("this program"));
    lab.args(["--exact", "stage::a_lab_to_be_killed", "--ignored"]).env(FOLDER, folder);
    let lab = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let ready = await_some("the lab is ready", || std::fs::read_to_string(folder.join("ready")).ok());
    let pid = ready.parse().expect("a process id");
    // A shell that became a sleep, its orphan, and nginx: a master and two workers, all of them orphans.
    let complete = |all: &[Stat]| {
        let count = |name| all.iter().filter(|stat| stat.name == name && !stat.ended()).count();
        count("sleep") == 2 && count("nginx") == 3
    };
    let (supervisor, family) = await_some("all run", || Some(family(pid)).filter(|(_, all)| complete(all)));
    (lab, supervisor, family.into_iter().filter(|stat| !stat.ended()).collect())
}

#[test]
fn nothing_survives_a_lab_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut lab, supervisor, family) = lab_to_be_killed(folder.path());
    let seen = process::stat(Path::new("/proc"), supervisor).unwrap();
    lab.kill().unwrap();
    lab.wait().unwrap();
    await_that("all have ended", || !family.iter().any(lives) && !lives(&seen));
}

#[test]
fn a_supervisor_that_is_killed_is_told_and_cleared_up_after() {
    let mut scene = Scene::new(&[]);
    let grouped = scene.stage.limits().words.starts_with("cgroup");
    let process = scene.shell(ORPHAN);
    let (supervisor, family) =
        await_some("the orphan runs", || Some(family(process.pid)).filter(|(_, all)| all.len() == 2));
    kill("-KILL", supervisor);
    let error = scene.stage.start(&scene.command(&["true"])).unwrap_err();
    assert!(matches!(error, StageError::SupervisorGone(_)), "{error}");
    assert!(scene.stage.exited(&process).is_some_and(|told| told.contains("is gone")));
    // Without groups only the process itself ends with its supervisor.
    let ends = |seen: &Stat| grouped || seen.pid == process.pid;
    await_that("all have ended", || !family.iter().filter(|seen| ends(seen)).any(lives));
}

#[test]
fn a_supervisor_that_is_asked_to_end_ends_all() {
    let mut scene = Scene::new(&["--no-cgroups"]);
    let process = scene.shell(ORPHAN);
    let (supervisor, family) =
        await_some("the orphan runs", || Some(family(process.pid)).filter(|(_, all)| all.len() == 2));
    kill("-TERM", supervisor);
    await_that("all have ended", || !family.iter().any(lives));
}
