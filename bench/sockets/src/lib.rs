//! A listener and its connections in one epoll set, for the single-threaded servers of the
//! measurements. They read and answer themselves.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Most open connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4_096;
const EVENTS_MAX: usize = 256;
const BACKLOG: i32 = 1_024;
const LISTENER: u64 = u64::MAX;

/// A listener and its connections. Each connection has a place, a number that is reused after it is
/// closed.
#[derive(Debug)]
pub struct Sockets<C> {
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<C>>,
    free: Vec<usize>,
}

/// Output of [`Sockets::wait`]; separate, so that connections can change while it is read.
#[derive(Default)]
pub struct Ready {
    events: Vec<Event>,
    /// True if connections wait to be accepted.
    pub listener: bool,
}

/// Event that a connection can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
}

impl Ready {
    /// Returns the places of ready connections; some may have been closed since.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.events
            .iter()
            .map(|event| event.data.u64())
            .filter(|data| *data != LISTENER)
            .map(|at| at as usize)
    }
}

impl<C> Sockets<C> {
    /// Creates a listening socket.
    pub fn bind(address: SocketAddr) -> Result<Self, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        net::bind(&listener, &address)?;
        net::listen(&listener, BACKLOG)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self { epoll, listener, connections: Vec::new(), free: Vec::new() })
    }

    /// Waits until something is ready, at most for `timeout`, and writes it to `ready`.
    pub fn wait(&self, ready: &mut Ready, timeout: Option<&Timespec>) -> Result<(), Errno> {
        ready.events.clear();
        ready.events.reserve(EVENTS_MAX);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready.events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        ready.listener = ready.events.iter().any(|event| event.data.u64() == LISTENER);
        Ok(())
    }

    /// Accepts all waiting connections; one that cannot be set up is dropped.
    pub fn accept(&mut self, mut connection: impl FnMut(OwnedFd) -> C) {
        while let Ok(socket) =
            net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        {
            let at = self.free.pop().unwrap_or(self.connections.len());
            let ready = at < CONNECTIONS_MAX
                && sockopt::set_tcp_nodelay(&socket, true).is_ok()
                && epoll::add(&self.epoll, &socket, EventData::new_u64(at as u64), EventFlags::IN)
                    .is_ok();
            if !ready {
                if at < self.connections.len() {
                    self.free.push(at);
                }
                continue;
            }
            if at == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[at] = Some(connection(socket));
        }
    }

    /// Returns the connection at a place, unless it is closed.
    pub fn at(&mut self, place: usize) -> Option<&mut C> {
        self.connections.get_mut(place)?.as_mut()
    }

    /// Sets the event that the connection waits for; initially it is `Readable`.
    pub fn await_other(&self, place: usize, readiness: Readiness) -> Result<(), Errno>
    where
        C: AsFd,
    {
        let Some(Some(connection)) = self.connections.get(place) else { return Ok(()) };
        let flags = match readiness {
            Readiness::Readable => EventFlags::IN,
            Readiness::Writable => EventFlags::OUT,
        };
        epoll::modify(&self.epoll, connection, EventData::new_u64(place as u64), flags)
    }

    /// Drops the connection with its socket, which closes it and removes it from the epoll set.
    pub fn close(&mut self, place: usize) {
        if self.connections.get_mut(place).and_then(Option::take).is_some() {
            self.free.push(place);
        }
    }
}
