//! Reads and writes of a socket without the C library.
//!
//! `recv` and `send` of the C library are cancellation points: in a program with threads each call
//! makes two atomic exchanges so that a thread could be cancelled in it, which happens to none of
//! ours. At two calls per request that is half a percent of a hit's CPU time, the kernel's
//! included.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A stream socket that the runtime watches.
pub trait Socket: AsFd + AsyncWrite + Unpin + 'static {
    /// Waits until it can be read.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until it can be written.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Runs `work` if the socket is ready; it is not ready any more if `work` would block.
    fn attempt<T>(&self, interest: Interest, work: impl FnOnce() -> io::Result<T>)
    -> io::Result<T>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(cx)
            }

            fn attempt<T>(
                &self,
                interest: Interest,
                work: impl FnOnce() -> io::Result<T>,
            ) -> io::Result<T> {
                self.try_io(interest, work)
            }
        }
    };
}

socket!(TcpStream);
socket!(UnixStream);

/// A socket that is read and written by system calls of our own.
#[derive(Debug)]
pub struct Direct<S>(pub S);

impl<S: Socket> Direct<S> {
    /// Runs `call` when the socket is ready. A call that moves less than `wanted` bytes, but some,
    /// has emptied or filled the socket: the next one waits for an event of the kernel.
    fn transfer(
        &self,
        interest: Interest,
        wanted: usize,
        cx: &mut Context<'_>,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if interest.is_readable() {
                ready!(self.0.poll_readable(cx))?;
            } else {
                ready!(self.0.poll_writable(cx))?;
            }
            let mut moved = None;
            let outcome = self.0.attempt(interest, || match call() {
                Ok(bytes) if 0 < bytes && bytes < wanted => {
                    moved = Some(bytes);
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(error.into()),
            });
            match (moved, outcome) {
                (Some(bytes), _) => return Poll::Ready(Ok(bytes)),
                (None, Err(error)) if is_transient(&error) => {}
                (None, outcome) => return Poll::Ready(outcome),
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl<S: Socket> AsyncRead for Direct<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let received = ready!(self.transfer(Interest::READABLE, room.len(), cx, || {
            recv(self.0.as_fd(), &mut *room, RecvFlags::empty()).map(|(bytes, _)| bytes)
        }))?;
        buffer.advance(received);
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Direct<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.transfer(Interest::WRITABLE, bytes.len(), cx, || {
            send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        self.transfer(Interest::WRITABLE, wanted, cx, || {
            let mut control = SendAncillaryBuffer::default();
            sendmsg(self.0.as_fd(), slices, &mut control, SendFlags::NOSIGNAL)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The kernel has what was written.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pair() -> (Direct<UnixStream>, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Direct(UnixStream::from_std(ours).unwrap()), theirs)
    }

    /// Each read is shorter than its buffer, so that each next one awaits a new event.
    #[tokio::test]
    async fn what_comes_piece_by_piece_is_read_piece_by_piece() {
        let (mut ours, mut theirs) = pair();
        for piece in [&b"one"[..], b"two", b"three"] {
            let mut got = vec![0; 100];
            let (read, ()) = tokio::join!(ours.read(&mut got), async {
                // The reader waits already.
                tokio::task::yield_now().await;
                theirs.write_all(piece).unwrap();
            });
            assert_eq!(&got[..read.unwrap()], piece);
        }
        theirs.write_all(b"exactly").unwrap();
        let mut exact = [0; 7];
        assert_eq!(ours.read(&mut exact).await.unwrap(), 7);
        drop(theirs);
        assert_eq!(ours.read(&mut exact).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_full_socket_is_written_to_when_the_peer_reads() {
        const BYTES: usize = 4 << 20;
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        let (head, rest) = sent.split_at(1_000);
        let first = ours.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]).await.unwrap();
        ours.write_all(&sent[first..]).await.unwrap();
        ours.shutdown().await.unwrap();
        assert!(reader.join().unwrap() == sent, "other bytes arrived");
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (mut ours, theirs) = pair();
        drop(theirs);
        assert_eq!(ours.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let slices = [IoSlice::new(b"x"), IoSlice::new(b"y")];
        let error = ours.write_vectored(&slices).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
