//! What TCP counted for all sockets together: `/proc/net/snmp` and `/proc/net/netstat`.

/// Segments and connections.
pub const SNMP_FILE: &str = "proc/net/snmp";
/// What went unusually.
pub const NETSTAT_FILE: &str = "proc/net/netstat";

/// From `/proc/net/snmp` (RFC 4022 has the meanings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Connections that were opened from here.
    pub active_opens: u64,
    /// Connections that were opened from elsewhere.
    pub passive_opens: u64,
    /// Connections that are established: a level, not a count.
    pub established: u64,
    /// Segments received.
    pub received: u64,
    /// Segments sent, without those that were sent again.
    pub sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
}

/// From the line `TcpExt` of `/proc/net/netstat`. Older kernels count less: what they do not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Connections that found the queue of a listener full.
    pub listen_overflows: u64,
    /// Connections that a listener dropped, for this or another reason.
    pub listen_drops: u64,
    /// Cookies that were sent because the queue of half-open connections was full.
    pub syncookies_sent: u64,
    /// Connections refused because that queue was full and cookies are off.
    pub half_open_drops: u64,
    /// Segments of which the other side said that it had them already (D-SACK, RFC 2883): they were sent again for nothing. Before 5.9 what is counted are such answers.
    pub sent_for_nothing: u64,
    /// Times that an answer did not come and the segment was sent again.
    pub timeouts: u64,
    /// Sockets that found no memory for TCP.
    pub memory_pressures: u64,
    /// Connections aborted for want of memory for TCP.
    pub aborts_on_memory: u64,
}

/// Reads the text of `/proc/net/snmp`.
#[must_use]
pub fn parse_segments(text: &str) -> Option<Segments> {
    let (names, values) = pair(text, "Tcp:")?;
    let value = |name: &str| value(names, values, name);
    Some(Segments {
        active_opens: value("ActiveOpens")?,
        passive_opens: value("PassiveOpens")?,
        established: value("CurrEstab")?,
        received: value("InSegs")?,
        sent: value("OutSegs")?,
        retransmitted: value("RetransSegs")?,
    })
}

/// Reads the text of `/proc/net/netstat`.
#[must_use]
pub fn parse_trouble(text: &str) -> Option<Trouble> {
    let (names, values) = pair(text, "TcpExt:")?;
    let value = |name: &str| value(names, values, name);
    Some(Trouble {
        listen_overflows: value("ListenOverflows")?,
        listen_drops: value("ListenDrops")?,
        syncookies_sent: value("SyncookiesSent").unwrap_or_default(),
        half_open_drops: value("TCPReqQFullDrop").unwrap_or_default(),
        sent_for_nothing: value("TCPDSACKRecvSegs").or_else(|| value("TCPDSACKRecv")).unwrap_or_default(),
        timeouts: value("TCPTimeouts").unwrap_or_default(),
        memory_pressures: value("TCPMemoryPressures").unwrap_or_default(),
        aborts_on_memory: value("TCPAbortOnMemory").unwrap_or_default(),
    })
}

/// A line of names and one of values follow each other, both with the same beginning.
fn pair<'a>(text: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    Some((lines.next()?, lines.next()?))
}

fn value(names: &str, values: &str, name: &str) -> Option<u64> {
    let at = names.split_ascii_whitespace().position(|word| word == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

impl Segments {
    /// What was added since `earlier`; `established` stays what it is.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            active_opens: self.active_opens.saturating_sub(earlier.active_opens),
            passive_opens: self.passive_opens.saturating_sub(earlier.passive_opens),
            established: self.established,
            received: self.received.saturating_sub(earlier.received),
            sent: self.sent.saturating_sub(earlier.sent),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
        }
    }

    /// Together with those of another network namespace.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            active_opens: self.active_opens.saturating_add(other.active_opens),
            passive_opens: self.passive_opens.saturating_add(other.passive_opens),
            established: self.established.saturating_add(other.established),
            received: self.received.saturating_add(other.received),
            sent: self.sent.saturating_add(other.sent),
            retransmitted: self.retransmitted.saturating_add(other.retransmitted),
        }
    }
}

impl Trouble {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            listen_overflows: self.listen_overflows.saturating_sub(earlier.listen_overflows),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
            syncookies_sent: self.syncookies_sent.saturating_sub(earlier.syncookies_sent),
            half_open_drops: self.half_open_drops.saturating_sub(earlier.half_open_drops),
            sent_for_nothing: self.sent_for_nothing.saturating_sub(earlier.sent_for_nothing),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
            memory_pressures: self.memory_pressures.saturating_sub(earlier.memory_pressures),
            aborts_on_memory: self.aborts_on_memory.saturating_sub(earlier.aborts_on_memory),
        }
    }

    /// Together with those of another network namespace.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            listen_overflows: self.listen_overflows.saturating_add(other.listen_overflows),
            listen_drops: self.listen_drops.saturating_add(other.listen_drops),
            syncookies_sent: self.syncookies_sent.saturating_add(other.syncookies_sent),
            half_open_drops: self.half_open_drops.saturating_add(other.half_open_drops),
            sent_for_nothing: self.sent_for_nothing.saturating_add(other.sent_for_nothing),
            timeouts: self.timeouts.saturating_add(other.timeouts),
            memory_pressures: self.memory_pressures.saturating_add(other.memory_pressures),
            aborts_on_memory: self.aborts_on_memory.saturating_add(other.aborts_on_memory),
        }
    }
}
