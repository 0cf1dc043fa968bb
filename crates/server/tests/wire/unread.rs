//! What the kernel holds for clients that do not read.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::common::frames::{Frame, Http2Client};
use crate::common::{Server, limits};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use hotrow_config::transport::Transport;
use socket2::{Domain, Socket, Type};

const GET_BIG: &[u8] = b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
/// Bytes that the kernel may hold for a connection, as its gauge counts them.
const CONNECTION_BYTES: u64 = 256 << 10;

/// Connects with room for almost nothing, so that the server's kernel holds what is not read.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

fn server(send_bytes: u64) -> Server {
    let transport = Transport { http2: true, ..Transport::default() };
    Server::start_over(Limits { send_bytes, ..limits() }, 1, transport)
}

#[test]
fn the_kernel_holds_little_for_a_client_that_does_not_read() {
    let server = server(0);
    let sent = || server.metrics().bytes_sent.get();
    let mut http1 = connect(server.address);
    http1.write_all(GET_BIG).unwrap();
    server.await_unread(1);
    let of_http1 = sent();
    let window = u32::MAX >> 1;
    let mut http2 = Http2Client::over(connect(server.address), &Frame::initial_window(window));
    http2.send(&Frame::window_update(0, window - 65_535)).get(1, "/big");
    server.await_unread(2);
    for bytes in [of_http1, sent() - of_http1] {
        assert!((32 << 10..CONNECTION_BYTES).contains(&bytes), "{bytes} bytes");
    }
}

#[test]
fn beyond_the_total_the_slowest_are_reset() {
    let server = server(3 * CONNECTION_BYTES);
    let clients: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut client = connect(server.address);
            client.write_all(GET_BIG).unwrap();
            client
        })
        .collect();
    server.await_closed(CloseCause::SendBytes, 2);
    server.await_unread(3);
    drop(clients);
}
