//! Lower bound of the CPU time for a cached record over HTTP/1.1 on this kernel.
//!
//! The bound is fair. The program sends the same bytes as the server under comparison, head and
//! body, so the kernel has the same work. It does all that a record server must do: wait for
//! readiness, read, parse the request with a real parser, look up the id in a bounded cache, keep
//! the date correct, write; with keep-alive and pipelining. It does nothing else: one thread, so no
//! locks or atomics; each answer is stored in one piece, so an answer costs one copy and a patched
//! date; no routes, limits, time-outs, conditional requests, metrics, freshness or database. CPU
//! time above the bound is the price of a server's features and libraries; below it is the
//! kernel's.

mod connection;
mod date;
mod records;

use std::net::SocketAddr;
use std::process::ExitCode;

use rustix::io::Errno;
use sockets::{Readiness, Ready, Sockets};

use connection::{Connection, State};
use date::Date;
use records::Records;

const USAGE: &str = "usage: floor ADDR RECORDS_FILE";

struct Server {
    sockets: Sockets<Connection>,
    records: Records,
    date: Date,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Server {
    fn bind(address: SocketAddr, records: Records) -> Result<Self, Errno> {
        Ok(Self {
            sockets: Sockets::bind(address)?,
            records,
            date: Date::now(),
            input: vec![0; connection::INPUT_BYTES_MAX],
            output: Vec::with_capacity(64 << 10),
        })
    }

    fn run(&mut self) -> Result<(), Errno> {
        let mut ready = Ready::default();
        loop {
            self.sockets.wait(&mut ready, None)?;
            self.date.refresh();
            if ready.listener {
                self.sockets.accept(Connection::new);
            }
            for place in ready.places() {
                self.serve(place)?;
            }
        }
    }

    fn serve(&mut self, place: usize) -> Result<(), Errno> {
        let Some(connection) = self.sockets.at(place) else { return Ok(()) };
        let before = connection.state();
        let after =
            connection.advance(&self.records, &self.date, &mut self.input, &mut self.output);
        if after == State::Closed {
            self.sockets.close(place);
        } else if after != before {
            let readiness =
                if after == State::Writing { Readiness::Writable } else { Readiness::Readable };
            self.sockets.await_other(place, readiness)?;
        }
        Ok(())
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(USAGE.to_owned());
    };
    let address: SocketAddr =
        address.parse().map_err(|e| format!("{address:?} is no address: {e}"))?;
    let records = Records::read(&file)?;
    let mut server =
        Server::bind(address, records).map_err(|e| format!("cannot listen on {address}: {e}"))?;
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
