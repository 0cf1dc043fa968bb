use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

fn put(folder: &Path, tid: u32, name: &str, schedstat: Option<&str>) {
    let of = folder.join(format!("proc/5/task/{tid}"));
    std::fs::create_dir_all(&of).unwrap();
    let stat = format!(
        "{tid} ({name}) R 1 40 39 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 987654 1000000 321 0\n"
    );
    std::fs::write(of.join("stat"), stat).unwrap();
    schedstat.iter().for_each(|text| std::fs::write(of.join("schedstat"), text).unwrap());
}

#[test]
fn thread_times_are_read_from_any_available_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::at(folder.path());
    for open_max in [0, 1, 9] {
        let (mut threads, mut buffer) = (ThreadSampler::new(5, open_max), Vec::new());
        std::fs::remove_dir_all(folder.path().join("proc")).ok();
        assert_eq!(
            threads.sample_once(&root, &mut buffer, false).unwrap_err().why,
            ProbeErrorKind::Missing
        );
        put(folder.path(), 9, "nine", Some("1000 2000 3\n"));
        put(folder.path(), 7, "seven", None);
        std::fs::create_dir_all(folder.path().join("proc/5/task/11")).unwrap();
        let tasks = threads.sample_once(&root, &mut buffer, false).unwrap();
        assert_eq!(
            tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(),
            ["seven", "nine"],
            "11 has ended"
        );
        assert_eq!((tasks[0].cpu, tasks[0].waited), (Duration::from_secs(2), None));
        assert_eq!(
            (tasks[1].cpu, tasks[1].waited),
            (Duration::from_micros(1), Some(Duration::from_micros(2)))
        );
        // Later: one thread has begun, one has ended, one has another name.
        put(folder.path(), 8, "eight", Some("5000 0 1\n"));
        put(folder.path(), 9, "nein", Some("9000 2000 3\n"));
        std::fs::remove_dir_all(folder.path().join("proc/5/task/7")).unwrap();
        let tasks = threads.sample_once(&root, &mut buffer, true).unwrap();
        let found: Vec<_> =
            tasks.iter().map(|task| (task.name.as_str(), task.cpu.as_micros())).collect();
        assert_eq!(found, [("eight", 5), ("nein", 9)], "with {open_max} open");
    }
}

#[test]
fn threads_of_this_process_come_and_go() {
    let (root, mut buffer) = (Root::machine(), Vec::new());
    let mut threads = ThreadSampler::new(std::process::id(), 64);
    let mut awaits = |what: &str, there: bool| {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let tasks = threads.sample_once(&root, &mut buffer, there).unwrap();
            assert!(tasks.iter().all(|task| task.waited.is_some()), "{tasks:?}");
            if tasks.iter().any(|task| task.name == "come-and-go") == there {
                return;
            }
            assert!(Instant::now() < until, "{what}: {tasks:?}");
        }
    };
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("come-and-go".to_owned())
        .spawn(move || ended.recv())
        .unwrap();
    awaits("it has come", true);
    drop(end);
    thread.join().unwrap().unwrap_err();
    awaits("it has gone", false);
}
