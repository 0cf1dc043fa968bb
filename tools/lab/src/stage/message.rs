//! Messages between lab and supervisor: one JSON value per line, a request and then its response.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest message, in bytes.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;

/// A request of the lab.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Returns the CPU limits; the first request.
    Limits,
    /// Sets the CPU weights of the deployment and of the generator.
    Weigh { generator_pid: u32 },
    /// Starts a process.
    Start {
        name: String,
        argv: Vec<String>,
        env: Vec<(String, String)>,
        dir: PathBuf,
        log: PathBuf,
        cores: Option<f64>,
    },
    /// Ends it and all its descendants.
    Stop { id: u32, signal: StopSignal },
    /// Returns how it ended, if it did.
    Exited { id: u32 },
    /// Returns its resource usage.
    Usage { id: u32 },
}

/// A response of the supervisor.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    /// To [`Request::Limits`].
    Limits(Limits),
    /// To [`Request::Weigh`].
    Weights(Weights),
    /// To [`Request::Start`].
    Started { id: u32, pid: u32, limit_cores: Option<f64> },
    /// To [`Request::Stop`].
    Stopped,
    /// To [`Request::Exited`].
    Exited(Option<String>),
    /// To [`Request::Usage`].
    Usage(Usage),
    /// The request failed, with the reason.
    Failed(String),
}

/// Writes and flushes a message.
pub(super) fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() as u64 > MESSAGE_BYTES_MAX {
        let text = format!(
            "a message of {} bytes is too long; at most {MESSAGE_BYTES_MAX} are sent",
            line.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    to.write_all(&line)?;
    to.flush()
}

/// Reads a message; `None` at the end of the stream.
pub(super) fn receive<T: DeserializeOwned>(from: impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        // A partial message is left by a killed sender.
        return if (line.len() as u64) < MESSAGE_BYTES_MAX {
            Ok(None)
        } else {
            let text = format!("a message is longer than {MESSAGE_BYTES_MAX} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        };
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}

/// Method of the CPU limits on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Description for the report: "cgroup v2, period 10 ms", "cgroup v1, period 10 ms", "pinned",
    /// "not possible: …".
    pub words: String,
    /// True if limits are possible at all.
    pub possible: bool,
    /// Warning for the report, such as the reason for pinning.
    pub warning: Option<String>,
}

/// CPU weights of deployment and generator against other processes of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// Description for the report: "deployment 262144, generator 65536, other processes 1024", "not
    /// set: …".
    pub words: String,
    /// Warning for the report if a weight could not be set.
    pub warning: Option<String>,
}

impl Weights {
    /// Returns the result where no weight can be set.
    pub(super) fn unset(why: &str) -> Self {
        let warning = format!(
            "The deployment has no CPU weight of its own, so that other processes of this machine \
             can take CPU time from it ({why})."
        );
        Self { words: format!("not set: {why}"), warning: Some(warning) }
    }
}

/// Resource usage of a process and all its descendants, ended and adopted ones included, since its
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system CPU time. Without cgroup v2 in ticks of the kernel, mostly 10 ms.
    pub cpu: Duration,
    /// Resident memory of the living processes, in bytes; shared pages count for each.
    pub rss_bytes: u64,
    /// Periods of the CPU limit in which it was runnable; 0 without a cgroup limit.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Descendants that were alive after the process itself had ended.
    pub left_children: u32,
}

/// Signal that asks a process to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGQUIT: nginx completes running requests.
    Quit,
    /// SIGINT: PostgreSQL disconnects its clients.
    Interrupt,
    /// SIGKILL: the process fails.
    Kill,
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let requests = [
            Request::Limits,
            Request::Start {
                name: "a\nb".to_owned(),
                argv: vec!["true".to_owned(), "\"ä\n".to_owned()],
                env: vec![("A".to_owned(), "1".to_owned())],
                dir: PathBuf::from("/"),
                log: PathBuf::from("/tmp/log"),
                cores: Some(0.25),
            },
            Request::Stop { id: 7, signal: StopSignal::Quit },
        ];
        let mut bytes = Vec::new();
        for request in &requests {
            send(&mut bytes, request).unwrap();
        }
        let mut from = Cursor::new(bytes);
        for request in &requests {
            assert_eq!(receive::<Request>(&mut from).unwrap().as_ref(), Some(request));
        }
        assert_eq!(receive::<Request>(&mut from).unwrap(), None);
    }

    #[test]
    fn a_partial_message_is_the_end_and_an_invalid_one_an_error() {
        assert_eq!(receive::<Request>(&b"{\"stop\":{\"id\""[..]).unwrap(), None);
        assert!(receive::<Request>(&b"{\"jump\":1}\n"[..]).is_err());
        let long = vec![b'x'; MESSAGE_BYTES_MAX as usize + 5];
        assert!(
            receive::<Request>(&long[..])
                .unwrap_err()
                .to_string()
                .contains("longer than 1048576 bytes")
        );
        let long = Response::Failed("x".repeat(MESSAGE_BYTES_MAX as usize));
        assert!(send(Vec::new(), &long).unwrap_err().to_string().contains("too long"));
    }
}
