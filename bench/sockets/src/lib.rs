//! A listener and its connections in one epoll set: what the servers of one thread that measurements need have in common. What is
//! read and answered is theirs.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections open at once; more are closed at once.
const CONNECTIONS_MAX: usize = 4_096;
const EVENTS_MAX: usize = 256;
const BACKLOG: i32 = 1_024;
const LISTENER: u64 = u64::MAX;

/// A listener and its connections, each of which has a place: a number that is given again when it is gone.
#[derive(Debug)]
pub struct Sockets<C> {
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<C>>,
    free: Vec<usize>,
}

/// What [`Sockets::wait`] writes to; outside, so that connections can be changed while it is read.
#[derive(Default)]
pub struct Ready {
    events: Vec<Event>,
    /// Whether connections wait to be taken.
    pub listener: bool,
}

/// What a connection may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
}

impl Ready {
    /// The places of the connections that are ready, which may have been closed since.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.events.iter().map(|event| event.data.u64()).filter(|data| *data != LISTENER).map(|at| at as usize)
    }
}

impl<C> Sockets<C> {
    /// Listens.
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

    /// Waits until something is ready, at most so long; then `ready` says what.
    pub fn wait(&self, ready: &mut Ready, patience: Option<&Timespec>) -> Result<(), Errno> {
        ready.events.clear();
        ready.events.reserve(EVENTS_MAX);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready.events), patience) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        ready.listener = ready.events.iter().any(|event| event.data.u64() == LISTENER);
        Ok(())
    }

    /// Takes every connection that waits; what cannot be taken is dropped, for there is nobody to tell.
    pub fn accept(&mut self, mut connection: impl FnMut(OwnedFd) -> C) {
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
            self.connections[at] = Some(connection(socket));
        }
    }

    /// The connection at a place, unless it is gone.
    pub fn at(&mut self, place: usize) -> Option<&mut C> {
        self.connections.get_mut(place)?.as_mut()
    }

    /// What the connection at a place waits for from now on; at first it is something to read.
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

    /// Drops the connection, and its socket with it: that closes it and takes it out of the epoll set as well.
    pub fn close(&mut self, place: usize) {
        if self.connections.get_mut(place).and_then(Option::take).is_some() {
            self.free.push(place);
        }
    }
}
