use std::sync::mpsc;

use super::*;

const SOON: Duration = Duration::from_secs(20);

/// Output that records the bytes written, with scripted results of its next writes.
#[derive(Clone, Default)]
struct Output {
    written: Arc<Mutex<Vec<u8>>>,
    outcomes: Arc<Mutex<VecDeque<io::Result<usize>>>>,
}

impl Output {
    fn with(outcomes: impl IntoIterator<Item = io::Result<usize>>) -> Self {
        Self {
            written: Arc::default(),
            outcomes: Arc::new(Mutex::new(outcomes.into_iter().collect())),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.outcomes.lock().unwrap().pop_front().unwrap_or(Ok(bytes.len()))?;
        self.written.lock().unwrap().extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Output that accepts a line for each message of a channel.
struct Gate(mpsc::Receiver<()>);

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(output: impl Write + Send + 'static, bytes_max: usize) -> LogWriter {
    LogWriter::start(&Supervisor::default(), Arc::default(), output, bytes_max).unwrap()
}

fn dropped(log: &LogWriter) -> u64 {
    log.queue.dropped_total.load(Ordering::Relaxed)
}

#[test]
fn lines_arrive_whole_and_in_order_through_partial_and_repeated_writes() {
    let again = |kind: io::ErrorKind| Err(kind.into());
    let output = Output::with([
        Ok(2),
        again(io::ErrorKind::Interrupted),
        Ok(1),
        again(io::ErrorKind::WouldBlock),
    ]);
    let mut log = start(output.clone(), QUEUE_BYTES_MAX);
    for line in ["first\n", "second\n"] {
        log.write_all(line.as_bytes()).unwrap();
    }
    assert!(LogWriter::flush(&log, SOON));
    assert_eq!((output.text().as_str(), dropped(&log)), ("first\nsecond\n", 0));
    log.close();
}

#[test]
fn a_line_that_cannot_be_written_is_counted_and_the_next_one_is_tried() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let output = Output::with([Err(full), Ok(0)]);
    let mut log = start(output.clone(), QUEUE_BYTES_MAX);
    for line in ["lost\n", "lost too\n", "kept\n"] {
        log.write_all(line.as_bytes()).unwrap();
    }
    assert!(LogWriter::flush(&log, SOON));
    assert_eq!((output.text().as_str(), dropped(&log)), ("kept\n", 2));
    log.close();
}

#[test]
fn a_blocked_output_blocks_no_caller_and_the_queue_stays_within_its_bytes() {
    let (open, gate) = mpsc::channel();
    let line = b"0123456789012345678901234567890123456789\n";
    let bytes = line.len() + LINE_OVERHEAD_BYTES;
    let mut log = start(Gate(gate), 10 * bytes);
    for _ in 0..1_000 {
        log.write_all(line).unwrap();
    }
    // Ten are in the queue, and one may be in the output.
    assert!((989..=990).contains(&dropped(&log)), "{}", dropped(&log));
    assert!(log.queue.lock().bytes <= 10 * bytes);
    assert!(!LogWriter::flush(&log, Duration::from_millis(1)), "the output is blocked");
    // The reader is gone: the remaining lines are dropped, and the queue is empty.
    drop(open);
    assert!(LogWriter::flush(&log, SOON));
    assert_eq!(dropped(&log), 1_000);
    log.close();
}
