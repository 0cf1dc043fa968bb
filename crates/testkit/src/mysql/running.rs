//! A statement that runs in a client of its own.

use super::*;

/// Running statements in a separate session, which ends when this is dropped.
pub struct Running {
    pub child: Child,
    pub writer: std::thread::JoinHandle<()>,
}

impl Running {
    /// Waits for the end of the statements.
    ///
    /// # Errors
    /// Error output of the client.
    pub fn outcome(self) -> Result<String, String> {
        let output = self.child.wait_with_output().expect("the SQL client ends");
        self.writer.join().expect("no panics there");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Returns true until the statements have ended.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Kills the client.
    pub fn kill(mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
