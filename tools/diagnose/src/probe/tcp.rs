//! TCP counters of all sockets: `/proc/net/snmp` and `/proc/net/netstat`.

/// File of segment and connection counters.
pub const SNMP_FILE: &str = "proc/net/snmp";
/// File of error counters.
pub const NETSTAT_FILE: &str = "proc/net/netstat";

/// Counters of `/proc/net/snmp` (defined in RFC 4022).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Connections opened by this side.
    pub active_opens: u64,
    /// Connections opened by the other side.
    pub passive_opens: u64,
    /// Established connections: a level, not a counter.
    pub established: u64,
    /// Segments received.
    pub received: u64,
    /// Segments sent, without retransmissions.
    pub sent: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
}

/// Counters of the line `TcpExt` of `/proc/net/netstat`; 0 where an older kernel lacks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpErrors {
    /// Connections that found a listener's queue full.
    pub listen_overflows: u64,
    /// Connections dropped by a listener, for this or another reason.
    pub listen_drops: u64,
    /// Cookies sent because the queue of half-open connections was full.
    pub syncookies_sent: u64,
    /// Connections refused because that queue was full and cookies are off.
    pub half_open_drops: u64,
    /// Spuriously retransmitted segments: the other side reported to have them already (D-SACK, RFC
    /// 2883). Before 5.9 the reports are counted.
    pub sent_for_nothing: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Sockets that found no TCP memory.
    pub memory_pressures: u64,
    /// Connections aborted for lack of TCP memory.
    pub aborts_on_memory: u64,
}

/// Parses `/proc/net/snmp`.
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

/// Parses `/proc/net/netstat`.
pub fn parse_errors(text: &str) -> Option<TcpErrors> {
    let (names, values) = pair(text, "TcpExt:")?;
    let value = |name: &str| value(names, values, name);
    Some(TcpErrors {
        listen_overflows: value("ListenOverflows")?,
        listen_drops: value("ListenDrops")?,
        syncookies_sent: value("SyncookiesSent").unwrap_or_default(),
        half_open_drops: value("TCPReqQFullDrop").unwrap_or_default(),
        sent_for_nothing: value("TCPDSACKRecvSegs")
            .or_else(|| value("TCPDSACKRecv"))
            .unwrap_or_default(),
        timeouts: value("TCPTimeouts").unwrap_or_default(),
        memory_pressures: value("TCPMemoryPressures").unwrap_or_default(),
        aborts_on_memory: value("TCPAbortOnMemory").unwrap_or_default(),
    })
}

/// Returns a line of names and the following line of values, both with the same prefix.
fn pair<'a>(text: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    Some((lines.next()?, lines.next()?))
}

fn value(names: &str, values: &str, name: &str) -> Option<u64> {
    let at = names.split_ascii_whitespace().position(|word| word == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

impl Segments {
    /// Returns the increase since `earlier`; `established` keeps its value.
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

    /// Adds the counters of another network namespace.
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

impl TcpErrors {
    /// Returns the increase since `earlier`.
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

    /// Adds the counters of another network namespace.
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
