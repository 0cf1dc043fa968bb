//! Socket of a connection that speaks HTTP/2: its input begins with what was read before, and is
//! followed frame by frame.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Seen;
use super::streams::Streams;
use crate::connection::stream::Stream;

/// A socket whose input is followed.
pub(super) struct Http2Io<T> {
    stream: T,
    /// Input that was read before.
    received: Bytes,
    streams: Rc<Streams>,
}

impl<T> Http2Io<T> {
    pub(super) fn new(stream: T, received: Bytes, streams: Rc<Streams>) -> Self {
        Self { stream, received, streams }
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.streams.sent(*bytes);
        }
        written
    }
}

impl<T: Stream> AsyncRead for Http2Io<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.received.is_empty() {
            match Pin::new(&mut self.stream).poll_read(cx, buffer) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        } else {
            let bytes = self.received.len().min(buffer.remaining());
            buffer.put_slice(&self.received[..bytes]);
            self.received.advance(bytes);
        }
        match self.streams.follow(&buffer.filled()[before..]) {
            Seen::Fine => Poll::Ready(Ok(())),
            Seen::Flood => Poll::Ready(Err(io::Error::other("too many control frames"))),
        }
    }
}

impl<T: Stream> AsyncWrite for Http2Io<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
