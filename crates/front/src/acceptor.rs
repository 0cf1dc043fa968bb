//! Acceptance of a worker's connections, up to the first byte of their requests.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use hotrow_access::caller::Peer;
use hotrow_answer::clients::{Clients, CountedConnection};
use hotrow_answer::metrics::CloseCause;
use hotrow_answer::ready_tasks::yield_to_ready_tasks;
use hotrow_answer::rejection::Rejection;
use hotrow_config::rate::Network;
use hotrow_config::transport::Transport;
use hotrow_measure::clock::Nanos;
use hotrow_net::accept_budget::AcceptBudget;
use hotrow_net::direct::Direct;
use hotrow_net::listen::WorkerSockets;
use hotrow_net::listen::inherited::{Holder, SharedHolder};
use hotrow_net::stream::Stream;
use hotrow_net::tls::files::subject;
use hotrow_net::tls::{HTTP2, TlsEndpoint};
use hotrow_supervisor::TaskGuard;
use hotrow_supervisor::shutdown::Shutdown;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::connection::handshake::{self, ProxyFailures, proxied_client, secured};
use crate::connection::serve::Serve;
use crate::connection::worker_context::WorkerContext;
use crate::connection::{
    Client, Registered, Registry, Speaks, redis, serve, serve_http2, turn_away,
};

/// Pause of a worker's accepting after it ran out of file descriptors or memory. Connections wait
/// in the kernel.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least interval of logging that.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(10);
/// Most connections over the limit that one worker answers at once; more are closed without an
/// answer.
pub(crate) const TURNED_AWAY_MAX: usize = 32;

/// A worker's listeners while they are served. Unless they were closed they are put back, also by a
/// panic, so that the worker's next run finds them with all waiting connections.
struct Listening<'a> {
    listeners: Option<OpenListeners>,
    home: &'a mut Option<WorkerSockets>,
}

struct OpenListeners {
    tcp: Vec<TcpListener>,
    tcp_holder: SharedHolder,
    unix: Option<UnixListener>,
    unix_holder: SharedHolder,
    redis: Vec<TcpListener>,
    redis_holder: SharedHolder,
    /// Listener that is asked first next time.
    next: Cell<usize>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        *self.home = self.listeners.take().and_then(|listeners| listeners.into_sockets().ok());
    }
}

impl OpenListeners {
    fn new(sockets: WorkerSockets) -> io::Result<Self> {
        let WorkerSockets { tcp, tcp_holder, unix, unix_holder, redis, redis_holder } = sockets;
        let open = |own: Vec<std::net::TcpListener>| {
            own.into_iter().map(TcpListener::from_std).collect::<io::Result<_>>()
        };
        let (tcp, redis) = (open(tcp)?, open(redis)?);
        let unix = unix.map(UnixListener::from_std).transpose()?;
        let next = Cell::new(0);
        Ok(Self { tcp, tcp_holder, unix, unix_holder, redis, redis_holder, next })
    }

    fn into_sockets(self) -> io::Result<WorkerSockets> {
        let Self { tcp, tcp_holder, unix, unix_holder, redis, redis_holder, .. } = self;
        let open = |own: Vec<TcpListener>| {
            own.into_iter().map(TcpListener::into_std).collect::<io::Result<_>>()
        };
        let (tcp, redis) = (open(tcp)?, open(redis)?);
        let unix = unix.map(UnixListener::into_std).transpose()?;
        Ok(WorkerSockets { tcp, tcp_holder, unix, unix_holder, redis, redis_holder })
    }

    /// Closes those from which the next process accepts. Returns whether some are left.
    fn close_succeeded(&mut self) -> bool {
        if self.tcp_holder.get() == Holder::Successor {
            self.tcp.clear();
        }
        if self.unix_holder.get() == Holder::Successor {
            self.unix = None;
        }
        if self.redis_holder.get() == Holder::Successor {
            self.redis.clear();
        }
        !self.tcp.is_empty() || self.unix.is_some() || !self.redis.is_empty()
    }

    async fn accept(&self) -> io::Result<Accepted> {
        poll_fn(|cx| {
            let http = self.tcp.iter().map(|tcp| (tcp, Speaks::Http));
            let redis = self.redis.iter().map(|tcp| (tcp, Speaks::Redis));
            let tcp_count = self.tcp.len() + self.redis.len();
            let count = tcp_count + usize::from(self.unix.is_some());
            let first = self.next.get();
            for at in (first..first + count).map(|at| at % count) {
                let accepted = match (http.clone().chain(redis.clone()).nth(at), &self.unix) {
                    (Some((tcp, speaks)), _) => {
                        let of = |(tcp, peer)| Accepted::of_tcp(tcp, peer, speaks);
                        tcp.poll_accept(cx).map_ok(of)
                    }
                    (None, Some(unix)) => {
                        unix.poll_accept(cx).map_ok(|(unix, _)| Accepted::Unix(Direct(unix)))
                    }
                    (None, None) => Poll::Pending,
                };
                if accepted.is_ready() {
                    // No listener waits for another that always has a connection.
                    self.next.set((at + 1) % count);
                    return accepted;
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// A connection that the kernel has completed.
enum Accepted {
    Tcp(Direct<TcpStream>, IpAddr, Speaks),
    Unix(Direct<UnixStream>),
}

impl Accepted {
    fn of_tcp(stream: TcpStream, peer: SocketAddr, speaks: Speaks) -> Self {
        Self::Tcp(Direct(stream), peer.ip(), speaks)
    }
}

/// What precedes the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Peers whose connections begin with a header of the PROXY protocol.
    proxies: Arc<[Network]>,
    /// TLS of TCP connections.
    tls: Option<Arc<TlsEndpoint>>,
    handshake_timeout: Duration,
    /// `true`: connections may speak HTTP/2.
    pub(crate) http2: bool,
}

impl Endpoint {
    pub(crate) fn new(transport: &Transport, tls: Option<Arc<TlsEndpoint>>) -> Self {
        Self {
            proxies: transport.proxies.as_slice().into(),
            tls,
            handshake_timeout: transport.handshake_timeout,
            http2: transport.http2,
        }
    }

    fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxies.iter().any(|network| network.contains(peer))
    }
}

pub(crate) struct Acceptor<S> {
    pub(crate) registry: Rc<Registry>,
    pub(crate) service: Rc<S>,
    /// Cloned once per connection being turned away.
    pub(crate) turned_away: Rc<()>,
    pub(crate) context: Rc<WorkerContext>,
    pub(crate) open: Arc<AtomicUsize>,
    /// Counts connections by client if they are limited.
    pub(crate) clients: Option<Arc<Clients>>,
    pub(crate) endpoint: Endpoint,
    /// Steps of TLS handshakes that may be performed at once: one.
    pub(crate) handshake_turns: Semaphore,
    /// Warnings about proxies.
    pub(crate) proxy_failures: Rc<ProxyFailures>,
}

impl<S: Serve> Acceptor<S> {
    /// Accepts until the drain begins; when the end is announced, makes each next answer the last
    /// of its connection. Returns when every connection has ended or the drain's time
    /// is over.
    pub(crate) async fn run(
        self: &Rc<Self>,
        sockets: &mut Option<WorkerSockets>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        // An earlier run has drained, and panicked during the drain.
        let Some(open) = sockets.take() else { return Ok(()) };
        let mut listening = Listening { listeners: Some(OpenListeners::new(open)?), home: sockets };
        tokio::select! {
            biased;
            () = shutdown.leaving() => {}
            () = self.accept(&listening) => {}
        }
        self.registry.leave();
        if listening.listeners.as_mut().is_some_and(OpenListeners::close_succeeded) {
            tokio::select! {
                biased;
                () = shutdown.draining() => {}
                () = self.accept(&listening) => {}
            }
        }
        if let Some(listeners) = listening.listeners.take() {
            self.take_queues(&listeners.into_sockets()?);
        }
        shutdown.draining().await;
        let drain_timeout = self.context.limits().drain_timeout;
        self.registry.drain(Nanos::now());
        let drained = async {
            while !self.registry.is_empty() || Rc::strong_count(&self.turned_away) > 1 {
                sleep(DRAIN_CHECK_INTERVAL).await;
            }
        };
        if timeout(drain_timeout, drained).await.is_err() {
            tracing::warn!(?drain_timeout, "drain timed out; open connections are cut off");
        }
        Ok(())
    }

    async fn accept(self: &Rc<Self>, listening: &Listening<'_>) {
        let Some(listeners) = &listening.listeners else { return };
        let mut logged = None::<Nanos>;
        let mut budget = AcceptBudget::new(Nanos::now());
        loop {
            match listeners.accept().await {
                Ok(accepted) => {
                    self.admit(accepted);
                    let now = Nanos::now();
                    if !budget.accepted(now) {
                        yield_to_ready_tasks().await;
                        let served_at = Nanos::now();
                        budget.next_turn(served_at.since(now), served_at);
                    }
                }
                // The client gave up while it waited, or its packet was refused: not a fault of
                // this host.
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    self.context.metrics.accept_errors.increment();
                    let now = Nanos::now();
                    if logged.is_none_or(|before| now.since(before) >= ACCEPT_LOG_PERIOD) {
                        logged = Some(now);
                        tracing::warn!(
                            %error,
                            "cannot accept connections; raise the limit on open files \
                             (ulimit -n) or lower limits.connections"
                        );
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(self: &Rc<Self>, accepted: Accepted) {
        match accepted {
            Accepted::Tcp(stream, peer, speaks) => {
                // Without it small answers wait for the acknowledgement of the previous one. A
                // socket that refuses is broken, which shows later.
                let _ = stream.0.set_nodelay(true);
                match &self.endpoint.tls {
                    _ if self.endpoint.is_proxy(peer) => self.admit_proxy(stream, peer, speaks),
                    Some(tls) => self.admit_secured(stream, peer.into(), speaks, tls),
                    None => self.admit_client(stream, peer.into(), speaks),
                }
            }
            Accepted::Unix(stream) => match stream.0.peer_cred() {
                Ok(credentials) => {
                    self.admit_client(stream, Peer::User(credentials.uid()), Speaks::Http);
                }
                // Without an identity no limit can be applied.
                Err(error) => tracing::warn!(%error, "the user of a Unix socket is unknown"),
            },
        }
    }

    fn admit_client(self: &Rc<Self>, stream: impl Stream, peer: Peer, speaks: Speaks) {
        let Some(place) = self.place(peer) else {
            return self.turn_away(stream, Rejection::ClientConnections, speaks);
        };
        let Some(registered) = self.registry.enter(&self.open, self.context.limits().connections)
        else {
            return self.turn_away(stream, Rejection::Connections, speaks);
        };
        let service = Rc::clone(&self.service);
        spawn_local(async move {
            let _place = place;
            let _guard = TaskGuard::new();
            serve_as(speaks, stream, peer.into(), service, registered).await;
        });
    }

    /// Admits a connection of a proxy. Its client is counted when the proxy has named it.
    fn admit_proxy(self: &Rc<Self>, mut stream: Direct<TcpStream>, proxy: IpAddr, speaks: Speaks) {
        let Some(registered) = self.registry.enter(&self.open, self.context.limits().connections)
        else {
            return self.turn_away(stream, Rejection::Connections, speaks);
        };
        let acceptor = Rc::clone(self);
        spawn_local(async move {
            let _guard = TaskGuard::new();
            let limit = acceptor.endpoint.handshake_timeout;
            let named = proxied_client(&mut stream, proxy);
            let peer = match handshake::within(limit, named, &registered).await {
                Ok(peer) => Peer::Address(peer),
                Err(failure) => {
                    acceptor.proxy_failures.note(proxy, &failure, Nanos::now());
                    return registered.close(failure.cause());
                }
            };
            let Some(_place) = acceptor.place(peer) else {
                registered.close(CloseCause::Refused);
                return acceptor.turn_away(stream, Rejection::ClientConnections, speaks);
            };
            let service = Rc::clone(&acceptor.service);
            match &acceptor.endpoint.tls {
                Some(tls) => {
                    let client = (peer, speaks);
                    Box::pin(acceptor.serve_secured(stream, client, tls, registered)).await;
                }
                None => serve_as(speaks, stream, peer.into(), service, registered).await,
            }
        });
    }

    /// Admits a connection that begins with a TLS handshake.
    fn admit_secured(
        self: &Rc<Self>,
        stream: Direct<TcpStream>,
        peer: Peer,
        speaks: Speaks,
        tls: &Arc<TlsEndpoint>,
    ) {
        let Some(place) = self.place(peer) else {
            return self.context.metrics.refused(Rejection::ClientConnections);
        };
        let Some(registered) = self.registry.enter(&self.open, self.context.limits().connections)
        else {
            // An answer before the handshake could not be read.
            return self.context.metrics.refused(Rejection::Connections);
        };
        let acceptor = Rc::clone(self);
        let tls = Arc::clone(tls);
        spawn_local(async move {
            let _place = place;
            let _guard = TaskGuard::new();
            acceptor.serve_secured(stream, (peer, speaks), &tls, registered).await;
        });
    }

    async fn serve_secured(
        &self,
        stream: Direct<TcpStream>,
        (peer, speaks): (Peer, Speaks),
        tls: &TlsEndpoint,
        registered: Registered,
    ) {
        let limit = self.endpoint.handshake_timeout;
        // Of its own memory: a served connection must not have room for its handshake.
        let config = if speaks == Speaks::Http { tls.config() } else { tls.config_of_redis() };
        let secured = Box::pin(secured(stream, config, &self.handshake_turns));
        let stream = match handshake::within(limit, secured, &registered).await {
            Ok(stream) => stream,
            Err(failure) => {
                tracing::debug!(%failure, ?peer, "a TLS connection is closed");
                return registered.close(failure.cause());
            }
        };
        let chain = stream.get_ref().1.peer_certificates();
        let certificate_subject = chain.and_then(<[_]>::first).and_then(subject);
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        let client = Client { peer, certificate_subject };
        let service = Rc::clone(&self.service);
        if speaks_http2 && speaks == Speaks::Http {
            Box::pin(serve_http2(stream, client, service, registered)).await;
        } else {
            serve_as(speaks, stream, client, service, registered).await;
        }
    }

    /// Counts a connection for its client. `None`: the client has reached its limit.
    fn place(&self, peer: Peer) -> Option<Option<CountedConnection>> {
        let Some(clients) = &self.clients else { return Some(None) };
        clients.enter(peer).map(Some)
    }

    fn turn_away(&self, stream: impl Stream, refusal: Rejection, speaks: Speaks) {
        self.context.metrics.refused(refusal);
        if Rc::strong_count(&self.turned_away) > TURNED_AWAY_MAX {
            return;
        }
        let ticket = Rc::clone(&self.turned_away);
        let context = Rc::clone(&self.context);
        spawn_local(async move {
            let _guard = TaskGuard::new();
            match speaks {
                Speaks::Http => turn_away(stream, refusal, &context.limits()).await,
                Speaks::Redis => redis::turn_away(stream, refusal).await,
            }
            drop(ticket);
        });
    }

    /// Accepts every connection that the kernel has completed, unless another process will: the
    /// listeners are closed at once afterwards, and the kernel resets connections completed after
    /// the last process has closed a listener.
    fn take_queues(self: &Rc<Self>, sockets: &WorkerSockets) {
        for (own, holder, speaks) in [
            (&sockets.tcp, &sockets.tcp_holder, Speaks::Http),
            (&sockets.redis, &sockets.redis_holder, Speaks::Redis),
        ] {
            for tcp in own.iter().filter(|_| holder.get() == Holder::None) {
                self.take_queue(
                    || tcp.accept(),
                    |(stream, peer)| {
                        stream.set_nonblocking(true)?;
                        Ok(Accepted::of_tcp(TcpStream::from_std(stream)?, peer, speaks))
                    },
                );
            }
        }
        let is_ours = sockets.unix_holder.get() == Holder::None;
        let Some(unix) = sockets.unix.as_ref().filter(|_| is_ours) else { return };
        self.take_queue(
            || unix.accept(),
            |(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Accepted::Unix(Direct(UnixStream::from_std(stream)?)))
            },
        );
    }

    fn take_queue<T>(
        self: &Rc<Self>,
        next: impl Fn() -> io::Result<T>,
        open: impl Fn(T) -> io::Result<Accepted>,
    ) {
        loop {
            match next() {
                Ok(taken) => {
                    if let Ok(accepted) = open(taken) {
                        self.admit(accepted);
                    }
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(_) => break,
            }
        }
    }
}

/// Serves a connection by the protocol of its listener.
async fn serve_as<S: Serve>(
    speaks: Speaks,
    stream: impl Stream,
    client: Client,
    service: Rc<S>,
    registered: Registered,
) {
    match speaks {
        Speaks::Http => serve(stream, client, service, registered).await,
        // Of its own memory: a connection of HTTP must not have room for it.
        Speaks::Redis => Box::pin(redis::serve(stream, client, service, registered)).await,
    }
}

/// Interval of checking whether the drain is over.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::Interrupted
    )
}
