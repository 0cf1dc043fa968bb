//! Messages of the handover, over a stream.
//!
//! The process before sends one line, `hotrow-handover 1 PID COUNT`, then COUNT single bytes, each
//! with one descriptor (`SCM_RIGHTS`). The next one answers `ready KIND…`; the first one ends with
//! `done`. Instead of any of its messages it may send `refused REASON`.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hotrow_net::listen::inherited::{INHERITED_SOCKETS_MAX, ListenerKind};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::HandoverError;

const GREETING: &str = "hotrow-handover 1";
const REFUSED: &str = "refused ";
const READY: &str = "ready";
/// Answer to `ready`: the handover is complete.
pub(super) const DONE: &str = "done";
/// Longest line.
pub(super) const LINE_BYTES_MAX: usize = 512;

/// First line of the process before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) pid: u32,
    pub(super) sockets: usize,
}

impl Greeting {
    pub(super) fn line(self) -> String {
        format!("{GREETING} {} {}\n", self.pid, self.sockets)
    }

    pub(super) fn parse(line: &str) -> Result<Self, HandoverError> {
        const WRONG: HandoverError = HandoverError::Protocol("the first line is not its greeting");
        check_refusal(line)?;
        let (pid, sockets) = line
            .strip_prefix(GREETING)
            .and_then(|rest| rest.strip_prefix(' ')?.split_once(' '))
            .ok_or(WRONG)?;
        let (Ok(pid), Ok(sockets)) = (pid.parse(), sockets.parse()) else { return Err(WRONG) };
        if sockets > INHERITED_SOCKETS_MAX {
            return Err(HandoverError::Protocol("it announces too many sockets"));
        }
        Ok(Self { pid, sockets })
    }
}

pub(super) fn refusal(reason: &str) -> String {
    format!("{REFUSED}{reason}\n")
}

pub(super) fn check_refusal(line: &str) -> Result<(), HandoverError> {
    match line.strip_prefix(REFUSED) {
        Some(reason) => Err(HandoverError::Refused(reason.to_owned())),
        None => Ok(()),
    }
}

/// Returns the line that reports which sockets the next process accepts from.
pub(super) fn ready_line(kinds: &[ListenerKind]) -> String {
    let kinds: String = kinds.iter().map(|kind| format!(" {kind}")).collect();
    format!("{READY}{kinds}\n")
}

pub(super) fn parse_ready(line: &str) -> Result<Vec<ListenerKind>, HandoverError> {
    const WRONG: HandoverError = HandoverError::Protocol("it did not report to be ready");
    let kinds = line.strip_prefix(READY).ok_or(WRONG)?;
    kinds.split_whitespace().map(|name| ListenerKind::named(name).ok_or(WRONG)).collect()
}

/// Reads a line byte by byte: descriptors may follow it.
pub(super) fn read_line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        if line.len() >= LINE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.push(byte[0]);
    }
}

/// Returns the byte that accompanies a socket of this kind. Two versions of the program speak this
/// protocol with each other, so a byte never changes its meaning.
fn mark(kind: ListenerKind) -> u8 {
    match kind {
        ListenerKind::Data => b'd',
        ListenerKind::Admin => b'a',
        ListenerKind::Unix => b'u',
        ListenerKind::AdminUnix => b'm',
        ListenerKind::Redis => b'r',
    }
}

/// Sends one socket.
pub(super) fn send_socket(
    stream: impl AsFd,
    kind: ListenerKind,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let byte = [mark(kind)];
    rustix::net::sendmsg(stream, &[IoSlice::new(&byte)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one socket, and its kind unless only a later version knows it.
pub(super) fn receive_socket(
    stream: impl AsFd,
) -> Result<(Option<ListenerKind>, OwnedFd), HandoverError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::net::recvmsg(stream, &mut buffers, &mut control, flags).map_err(io::Error::from)?;
    let mut socket = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message {
            socket = sockets.next();
        }
    }
    let kind = ListenerKind::ALL.into_iter().find(|kind| mark(*kind) == byte[0]);
    match (received.bytes, socket) {
        (0, _) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        (_, Some(socket)) => Ok((kind, socket)),
        _ => Err(HandoverError::Protocol("a socket is missing")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let greeting = Greeting { pid: 7, sockets: 3 };
        assert_eq!(Greeting::parse(greeting.line().trim_end()).unwrap(), greeting);
        let kinds = [ListenerKind::Data, ListenerKind::Unix];
        assert_eq!(parse_ready(ready_line(&kinds).trim_end()).unwrap(), kinds);
        assert_eq!(parse_ready("ready").unwrap(), []);
        let refused = Greeting::parse(refusal("busy").trim_end()).unwrap_err();
        assert!(matches!(&refused, HandoverError::Refused(reason) if reason == "busy"));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "hotrow-handover 2 1 1", "hotrow-handover 1", "hotrow-handover 1 x 1"] {
            assert!(Greeting::parse(line).is_err(), "{line}");
        }
        assert!(Greeting::parse("hotrow-handover 1 1 100000").is_err());
        for line in ["", "readydata x", "ready datas"] {
            assert!(parse_ready(line).is_err(), "{line}");
        }
        let endless = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(read_line(&mut &endless[..]).is_err());
        assert!(read_line(&mut &b"no end"[..]).is_err());
    }

    #[test]
    fn a_socket_arrives_with_its_kind_behind_a_line() {
        let (mut from, mut to) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        io::Write::write_all(&mut from, b"line\n").unwrap();
        send_socket(&from, ListenerKind::Admin, listener.as_fd()).unwrap();
        send_socket(&from, ListenerKind::Data, listener.as_fd()).unwrap();
        io::Write::write_all(&mut from, b"d").unwrap();
        assert_eq!(read_line(&mut to).unwrap(), "line");
        let (kind, socket) = receive_socket(&to).unwrap();
        let received = TcpListener::from(socket).local_addr().unwrap();
        assert_eq!((kind, received), (Some(ListenerKind::Admin), listener.local_addr().unwrap()));
        assert_eq!(receive_socket(&to).unwrap().0, Some(ListenerKind::Data));
        assert!(matches!(receive_socket(&to), Err(HandoverError::Protocol(_))), "no socket");
        drop(from);
        assert!(matches!(receive_socket(&to), Err(HandoverError::Io(_))), "it has ended");
    }
}
