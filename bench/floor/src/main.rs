//! The practical floor: the least CPU time that a cached record can cost over HTTP/1.1 on this kernel.
//!
//! Why it is a fair floor. It sends the same bytes as the server it is compared with, head and body, so the kernel has the
//! same work. It does the work that no server of records can leave out: wait for readiness, read, parse the request with a
//! real parser, look the id up in a bounded cache, keep the date right, write; keep-alive and pipelining included. It does
//! nothing else: one thread, so no lock and no atomic; each answer lies ready in one piece, so answering is one copy and a
//! patched date; no routes, limits, time-outs, conditional requests, metrics, freshness or database. What is above this
//! figure is the price of a server's features and libraries, what is below it is the kernel's.

mod connection;
mod date;
mod records;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use connection::{Connection, State};
use date::Date;
use records::Records;

const USAGE: &str = "usage: floor ADDR RECORDS_FILE";
/// Connections open at once; more are closed at once.
const CONNECTIONS_MAX: usize = 4_096;
const EVENTS_MAX: usize = 256;
const BACKLOG: i32 = 1_024;
const LISTENER: u64 = u64::MAX;

struct Server {
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    records: Records,
    date: Date,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Server {
    fn bind(address: SocketAddr, records: Records) -> Result<Self, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        sockopt::set_socket_reuseport(&listener, true)?;
        net::bind(&listener, &address)?;
        net::listen(&listener, BACKLOG)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            records,
            date: Date::now(),
            input: vec![0; connection::INPUT_BYTES_MAX],
            output: Vec::with_capacity(64 << 10),
        })
    }

    fn run(&mut self) -> Result<(), Errno> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            self.date.refresh();
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    at => self.serve(at as usize)?,
                }
            }
        }
    }

    /// Takes every waiting connection; what cannot be taken is dropped, for there is nobody to tell.
    fn accept(&mut self) {
        while let Ok(socket) = net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            let at = self.free.pop().unwrap_or(self.connections.len());
            let ready = at < CONNECTIONS_MAX
                && sockopt::set_tcp_nodelay(&socket, true).is_ok()
                && epoll::add(&self.epoll, &socket, EventData::new_u64(at as u64), EventFlags::IN).is_ok();
            if !ready {
                if at < self.connections.len() {
                    self.free.push(at);
                }
                continue;
            }
            if at == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[at] = Some(Connection::new(socket));
        }
    }

    fn serve(&mut self, at: usize) -> Result<(), Errno> {
        let Some(connection) = self.connections[at].as_mut() else { return Ok(()) };
        let before = connection.state();
        let after = connection.advance(&self.records, &self.date, &mut self.input, &mut self.output);
        if after == State::Closed {
            // Dropping the socket closes it, which takes it out of the epoll set as well.
            self.connections[at] = None;
            self.free.push(at);
        } else if after != before {
            let flags = if after == State::Writing { EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, connection.socket(), EventData::new_u64(at as u64), flags)?;
        }
        Ok(())
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err(USAGE.to_owned());
    };
    let address: SocketAddr = address.parse().map_err(|e| format!("{address:?} is no address: {e}"))?;
    let records = Records::read(&file)?;
    let mut server = Server::bind(address, records).map_err(|e| format!("cannot listen on {address}: {e}"))?;
    server.run().map_err(|e| format!("epoll: {e}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("floor: {message}");
            ExitCode::FAILURE
        }
    }
}
