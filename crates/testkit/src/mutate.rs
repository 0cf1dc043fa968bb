//! Mutations for the short runs of the fuzz targets, which need no special compiler: corpus inputs,
//! changed at random from a fixed seed. Each crate's test includes this file.

use std::path::Path;

/// Longer inputs are truncated.
const INPUT_BYTES_MAX: usize = 8192;

/// Runs `target` over every input in `folder` and over `runs` mutations of them, multiplied by
/// `HOTROW_FUZZ_TIMES` if that is set.
pub fn run(folder: &str, runs: u64, pieces: &[&[u8]], target: fn(&[u8])) {
    let inputs = corpus(Path::new(folder));
    assert!(inputs.len() >= 5, "{folder} holds {} inputs", inputs.len());
    inputs.iter().for_each(|input| target(input));
    let times = std::env::var("HOTROW_FUZZ_TIMES")
        .map_or(1, |n| n.parse().expect("HOTROW_FUZZ_TIMES is a number"));
    for seed in 0..runs * times {
        let mut random = Random(seed);
        let mut input = inputs[random.below(inputs.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, &inputs, pieces, &mut random);
        }
        input.truncate(INPUT_BYTES_MAX);
        let outcome = std::panic::catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "seed {seed} of {folder}: {}", input.escape_ascii());
    }
}

fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> =
        entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a file that can be read")).collect()
}

fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], pieces: &[&[u8]], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let until = (at + random.below(12)).min(input.len());
    match random.below(7) {
        0 if at < input.len() => input[at] = random.next() as u8,
        1 if at < input.len() => input[at] ^= 1 << random.below(8),
        2 => drop(input.drain(at..until)),
        3 => input.truncate(at),
        4 => drop(input.splice(at..at, input[at..until].to_vec())),
        5 => {
            let other = &inputs[random.below(inputs.len())];
            let from = random.below(other.len() + 1);
            input.extend_from_slice(&other[from..]);
        }
        _ if !pieces.is_empty() => {
            drop(input.splice(at..at, pieces[random.below(pieces.len())].iter().copied()))
        }
        _ => input.push(random.next() as u8),
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
