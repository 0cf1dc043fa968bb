//! Windows of flow control (RFC 9113 section 5.2).

/// Largest window.
pub const WINDOW_BYTES_MAX: i64 = (1 << 31) - 1;

/// Bytes that may still be sent. A change of the initial window may make it negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow(i64);

/// The window would be larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOverflow;

impl SendWindow {
    /// Creates a window of `bytes`.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// Returns the bytes that may be sent now.
    #[must_use]
    pub fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Notes that `bytes`, at most those available, were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    /// Changes the window by `bytes`, which may be negative.
    ///
    /// # Errors
    /// The window would be too large.
    pub fn change(&mut self, bytes: i64) -> Result<(), WindowOverflow> {
        let changed = self.0 + bytes;
        if changed > WINDOW_BYTES_MAX {
            return Err(WindowOverflow);
        }
        self.0 = changed;
        Ok(())
    }
}

/// Bytes that a client may still send, and those read since the last window update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindow {
    left: u32,
    read: u32,
    bytes: u32,
}

impl ReceiveWindow {
    /// Creates a window of `bytes`.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self { left: bytes, read: 0, bytes }
    }

    /// Notes that `bytes` have arrived.
    ///
    /// # Errors
    /// They are more than allowed.
    pub fn arrived(&mut self, bytes: usize) -> Result<(), WindowOverflow> {
        let bytes = u32::try_from(bytes).map_err(|_| WindowOverflow)?;
        self.left = self.left.checked_sub(bytes).ok_or(WindowOverflow)?;
        Ok(())
    }

    /// Notes that `bytes` of those that have arrived were read. Returns how much the client must be
    /// given; none as long as it has half of the window, so that it is not given byte by byte.
    pub fn read(&mut self, bytes: usize) -> Option<u32> {
        self.read += u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes - self.read);
        if self.read < self.bytes / 2 {
            return None;
        }
        let given = std::mem::take(&mut self.read);
        self.left += given;
        Some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_and_has_an_end() {
        let mut window = SendWindow::new(10);
        window.sent(10);
        assert_eq!(window.available(), 0);
        window.change(-5).unwrap();
        assert_eq!(window.available(), 0);
        window.change(6).unwrap();
        assert_eq!(window.available(), 1);
        assert_eq!(window.change(WINDOW_BYTES_MAX), Err(WindowOverflow));
        window.change(WINDOW_BYTES_MAX - 1).unwrap();
        assert_eq!(window.available() as i64, WINDOW_BYTES_MAX);
    }

    #[test]
    fn a_receive_window_is_given_by_halves() {
        let mut window = ReceiveWindow::new(100);
        window.arrived(100).unwrap();
        assert_eq!(window.arrived(1), Err(WindowOverflow));
        assert_eq!(window.read(49), None);
        assert_eq!(window.read(1), Some(50));
        window.arrived(50).unwrap();
        assert_eq!(window.arrived(1), Err(WindowOverflow));
        assert_eq!(window.read(100), Some(100), "all that has arrived");
    }
}
