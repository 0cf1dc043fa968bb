use std::path::PathBuf;

use super::*;
use crate::root::ProbeErrorKind;

#[test]
fn this_machine_is_sampled_with_its_cost() {
    let own = std::process::id();
    let mut sampler = Sampler::new(Root::machine(), &[own]);
    assert_eq!(sampler.cost().share(), None);
    let first = sampler.sample(Nanos(1_000_000_000));
    let second = sampler.sample(Nanos(1_100_000_000));
    let (before, after) = (first.cpu.unwrap(), second.cpu.unwrap());
    assert!(after.context_switches >= before.context_switches, "{after:?}");
    assert!(second.memory.unwrap().total > 0 && second.load.unwrap().threads > 0);
    assert_eq!(second.processes[0].pid, own);
    // This thread only, because threads of other tests may end between the two.
    let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let cpu = |process: &ProcessSample| {
        process.tasks.as_ref().unwrap().iter().find(|task| task.tid == this).unwrap().cpu
    };
    assert!(cpu(&second.processes[0]) >= cpu(&first.processes[0]));
    let cost = sampler.cost();
    assert!(
        cost.cpu > Duration::ZERO && cost.samples == 2 && cost.span == Duration::from_millis(100),
        "{cost:?}"
    );
    let share = cost.share().unwrap();
    assert!((share - cost.cpu.as_secs_f64() / 2.0 / 0.1).abs() < 1e-9, "{share}");
}

#[test]
fn missing_files_are_reported_in_every_sample() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut sampler = Sampler::new(Root::at(fixtures.join("linux-4.18-el8")), &[4242, 9]);
    for _ in 0..2 {
        let sample = sampler.sample(Nanos(5));
        assert_eq!(sample.cpu_pressure.unwrap_err().why, ProbeErrorKind::Missing);
        assert_eq!((sample.conntrack, sample.files.map(|files| files.open)), (Ok(536), Ok(2048)));
        assert_eq!(sample.processes[1].tasks.as_ref().unwrap_err().why, ProbeErrorKind::Missing);
    }
}

#[test]
fn a_file_is_read_again_and_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
    let (root, mut buffer) = (Root::at(folder.path()), Vec::new());
    let mut open = OpenFile::new(network::SOFTNET_FILE);
    let write =
        |text: &str| std::fs::write(folder.path().join(network::SOFTNET_FILE), text).unwrap();
    for lines in [1_u64, 5000, 2] {
        write(&"00000003 00000001 00000000\n".repeat(lines as usize));
        let seen = open.parse(&root, &mut buffer, network::parse_softnet).unwrap();
        assert_eq!((seen.processed, seen.dropped), (3 * lines, lines));
    }
    write("x");
    let garbled = open.parse(&root, &mut buffer, network::parse_softnet).unwrap_err();
    assert_eq!(garbled.why, ProbeErrorKind::Malformed("x".to_owned()));
}

#[test]
fn the_sampler_stops_on_request() {
    let stop = AtomicBool::new(false);
    let mut taken: Vec<Nanos> = Vec::new();
    let mut sampler = Sampler::new(Root::at("/nonexistent"), &[]);
    sampler.run(Duration::ZERO, &stop, |sample| {
        taken.push(sample.at);
        stop.store(taken.len() == 3, Ordering::Relaxed);
    });
    assert_eq!(taken.len(), 3);
    assert!(taken.is_sorted(), "{taken:?}");
}
