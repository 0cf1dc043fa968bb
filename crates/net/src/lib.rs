//! Sockets of the service, below every protocol that it speaks: [`listen`] (TCP and Unix sockets,
//! its own or inherited), [`proxy_header`] (what a proxy sends first), [`tls`] of both addresses,
//! [`direct`] and [`stream`] (bytes of a connection), [`accept_budget`] (how many connections to
//! accept at once), [`file_watch`] (files that are taken over while the process runs) and
//! [`http_client`] (what the program itself requests).
//!
//! It imports `config`, `measure` and `supervisor`, and knows no request, record or limit of the
//! service. Errors name the file or the address that is wrong. A queue of connections is never
//! closed unless another process has taken it over.

pub mod accept_budget;
pub mod direct;
pub mod file_watch;
pub mod http_client;
pub mod listen;
pub mod proxy_header;
pub mod stream;
pub mod tls;
