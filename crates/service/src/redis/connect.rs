//! What clients send when they connect: `HELLO`, `AUTH`, `CLIENT`, and what they test a connection
//! with. The texts of errors are those of Redis.

use std::fmt::Write as _;
use std::rc::Rc;

use hotrow_access::caller::{Peer, Sender};
use hotrow_answer::commands::{Command, Spec};
use hotrow_resp::{Version, write};

use super::Session;
use super::answered::Received;
use super::command_request::{AuthenticatedCommand, CommandRequest};
use super::refusal::{NO_AUTH, WRONG_PASS, of_credential, unknown_subcommand, wrong_arity};
use super::session::is_name;
use super::track;
use super::{Commands, Replied};
use crate::tracking::{Password, credential_of};

/// Name of the only user.
const DEFAULT_USER: &[u8] = b"default";
const SYNTAX: &str = "ERR syntax error";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const TRACKS: &str = "ERR HELLO 2 is not possible while the connection tracks without REDIRECT; \
    send CLIENT TRACKING OFF first";

impl Commands {
    /// Serves the commands that need no credential.
    pub(super) fn set_up(
        self: &Rc<Self>,
        spec: &'static Spec,
        request: &CommandRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let result = match spec.command {
            Command::Auth => self.auth(request).map(|()| write::status(out, "OK")),
            Command::Hello => self.hello(request, out),
            Command::Reset => {
                request.session.reset();
                write::status(out, "RESET");
                Ok(())
            }
            // `QUIT`.
            _ => {
                write::status(out, "OK");
                let _counted = self.recorder.done(spec);
                return Replied::Last;
            }
        };
        match result {
            Ok(()) => self.recorder.done(spec),
            Err(text) => {
                self.recorder.refuse_command(Received::unknown_sender(request, spec), &text, out)
            }
        }
    }

    fn auth(self: &Rc<Self>, request: &CommandRequest<'_>) -> Result<(), String> {
        let arguments = request.arguments;
        let (user, password) = match (arguments.get(1), arguments.get(2)) {
            (Some(password), None) => (None, password),
            (Some(user), Some(password)) if arguments.len() == 3 => (Some(user), password),
            _ => return Err(SYNTAX.to_owned()),
        };
        if self.reads.authorisation.is_open() && user.is_none() {
            return Err("ERR AUTH <password> called without any password configured for the \
                 default user. Are you sure your configuration is correct?"
                .to_owned());
        }
        let (password, sender) = self.checked(user.unwrap_or(DEFAULT_USER), password, request)?;
        request.session.set_password(password);
        self.changed_credential(request.session, &sender);
        Ok(())
    }

    /// Returns the password of a user, an API key or a token, and who sends it.
    fn checked(
        &self,
        user: &[u8],
        password: &[u8],
        request: &CommandRequest<'_>,
    ) -> Result<(Password, Sender), String> {
        if user != DEFAULT_USER {
            return Err(WRONG_PASS.to_owned());
        }
        // As a user of Redis without a password: any is right.
        let is_open = self.reads.authorisation.is_open();
        let password = (!is_open).then(|| Rc::from(password));
        match self
            .reads
            .authorisation
            .authenticate(|| Ok(credential_of(&password)), &request.read())
        {
            Ok(sender) => Ok((password, sender)),
            Err(problem) => Err(of_credential(&problem)),
        }
    }

    fn hello(
        self: &Rc<Self>,
        request: &CommandRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (arguments, session) = (request.arguments, request.session);
        let version = match arguments.get(1) {
            None => session.version.get(),
            Some(b"2") => Version::Resp2,
            Some(b"3") => Version::Resp3,
            Some(other) => {
                let number = std::str::from_utf8(other).ok().and_then(|n| n.parse::<i64>().ok());
                return Err(match number {
                    Some(_) => "NOPROTO unsupported protocol version",
                    None => "ERR Protocol version is not an integer or out of range",
                }
                .to_owned());
            }
        };
        if version == Version::Resp2 && session.needs_pushes() {
            return Err(TRACKS.to_owned());
        }
        let mut password = session.password();
        let mut has_credential = false;
        let mut name = None;
        let mut options = arguments.from(2);
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"auth")
                && let (Some(user), Some(given)) = (options.next(), options.next())
            {
                (password, _) = self.checked(user, given, request)?;
                has_credential = true;
            } else if option.eq_ignore_ascii_case(b"setname")
                && let Some(given) = options.next()
            {
                name = Some(given);
            } else {
                let shown = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{shown}'"));
            }
        }
        let own = || Ok(credential_of(&password));
        let Ok(sender) = self.reads.authorisation.authenticate(own, &request.read()) else {
            return Err("NOAUTH HELLO must be called with the client already authenticated, \
                 otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
                 authenticate the client and select the RESP protocol version at the same time"
                .to_owned());
        };
        if name.is_some_and(|name| !is_name(name)) {
            return Err(BAD_NAME.to_owned());
        }
        session.set_password(password);
        if has_credential {
            self.changed_credential(session, &sender);
        }
        session.version.set(version);
        self.name_connection(session, &sender);
        if let Some(name) = name {
            *session.name.borrow_mut() = name.into();
        }
        write_hello(session, out);
        Ok(())
    }

    /// Serves the commands that have nothing to do with records.
    pub(super) fn describe_or_name(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let AuthenticatedCommand { request, spec, .. } = *asked;
        let (arguments, session) = (request.arguments, request.session);
        let first = arguments.get(1);
        let result = match spec.command {
            Command::Ping if session.is_subscribed.get() && arguments.len() <= 2 => {
                match session.version.get() {
                    Version::Resp2 => {
                        write::array(out, 2);
                        write::bulk(out, b"pong");
                        write::bulk(out, first.unwrap_or_default());
                    }
                    Version::Resp3 => match first {
                        None => write::status(out, "PONG"),
                        Some(message) => write::bulk(out, message),
                    },
                }
                Ok(())
            }
            Command::Ping => match (first, arguments.len()) {
                (None, _) => {
                    write::status(out, "PONG");
                    Ok(())
                }
                (Some(message), 2) => {
                    write::bulk(out, message);
                    Ok(())
                }
                _ => Err(wrong_arity("ping")),
            },
            Command::Echo => {
                write::bulk(out, first.unwrap_or_default());
                Ok(())
            }
            Command::Select => select(first.unwrap_or_default()).map(|()| write::status(out, "OK")),
            Command::Client => self.client_command(asked, out),
            Command::Describe => super::describe::command(request, out),
            Command::Info => {
                let text = super::describe::info();
                write::text(out, session.version.get(), &text);
                Ok(())
            }
            // The others are served elsewhere.
            _ => Err(NO_AUTH.to_owned()),
        };
        match result {
            Ok(()) => self.recorder.done(spec),
            Err(text) => self.recorder.refuse_command(asked, &text, out),
        }
    }
}

fn select(database: &[u8]) -> Result<(), String> {
    let number = std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok());
    Err(match number {
        Some(0) => return Ok(()),
        Some(_) => "ERR DB index is out of range",
        None => "ERR value is not an integer or out of range",
    }
    .to_owned())
}

fn write_hello(session: &Session, out: &mut Vec<u8>) {
    let version = session.version.get();
    write::map(out, version, 8);
    // Libraries refuse client-side caching to servers of another name, and of an older version.
    for (name, value) in [
        ("server", "redis"),
        ("version", super::describe::FOLLOWED_VERSION),
        ("hotrow", env!("CARGO_PKG_VERSION")),
    ] {
        write::bulk(out, name.as_bytes());
        write::bulk(out, value.as_bytes());
    }
    write::bulk(out, b"proto");
    write::integer(out, version.number());
    write::bulk(out, b"id");
    write::integer(out, i64::try_from(session.id).unwrap_or(i64::MAX));
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        write::bulk(out, name.as_bytes());
        write::bulk(out, value.as_bytes());
    }
    write::bulk(out, b"modules");
    write::array(out, 0);
}

impl Commands {
    /// Serves `CLIENT`.
    fn client_command(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (arguments, session) = (asked.request.arguments, asked.request.session);
        let name = arguments.get(1).unwrap_or_default().to_ascii_lowercase();
        match (&*name, arguments.len()) {
            (b"tracking", 3..) => self.track(asked, out),
            (b"id", 2) => {
                self.name_connection(session, asked.sender);
                client(asked.request, out)
            }
            _ => client(asked.request, out),
        }
    }

    /// Makes it possible that other connections name this one, whose client learns its number.
    fn name_connection(&self, session: &Session, sender: &Sender) {
        if let Some(tracking) = &self.tracking {
            session.mailbox(tracking.shared(), sender);
        }
    }
}

/// Serves what of `CLIENT` is about the connection alone.
fn client(request: &CommandRequest<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let (arguments, session) = (request.arguments, request.session);
    let name = arguments.get(1).unwrap_or_default().to_ascii_lowercase();
    let count = arguments.len();
    let [first, second] = [2, 3].map(|at| arguments.get(at).unwrap_or_default());
    let ok = |out: &mut Vec<u8>| write::status(out, "OK");
    match (&*name, count) {
        (b"id", 2) => write::integer(out, i64::try_from(session.id).unwrap_or(i64::MAX)),
        (b"getname", 2) => match &**session.name.borrow() {
            [] => write::null(out, session.version.get()),
            name => write::bulk(out, name),
        },
        (b"setname", 3) if !is_name(first) => return Err(BAD_NAME.to_owned()),
        (b"setname", 3) => {
            *session.name.borrow_mut() = first.into();
            ok(out);
        }
        (b"setinfo", 4) => {
            set_info(session, first, second)?;
            ok(out);
        }
        (b"info", 2) => write::text(out, session.version.get(), &info_line(session)),
        (b"no-evict" | b"no-touch", 3) => {
            if !first.eq_ignore_ascii_case(b"on") && !first.eq_ignore_ascii_case(b"off") {
                return Err(SYNTAX.to_owned());
            }
            ok(out);
        }
        (b"caching", 3) => track::caching(session, first, out)?,
        (b"getredir", 2) => track::target(session, out),
        (b"trackinginfo", 2) => track::describe(session, out),
        (
            b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"no-evict" | b"no-touch"
            | b"tracking" | b"caching" | b"getredir" | b"trackinginfo",
            _,
        ) => return Err(wrong_arity(&format!("client|{}", String::from_utf8_lossy(&name)))),
        _ => return Err(unknown_subcommand(arguments.get(1), "CLIENT")),
    }
    Ok(())
}

fn set_info(session: &Session, attribute: &[u8], value: &[u8]) -> Result<(), String> {
    let attribute = attribute.to_ascii_lowercase();
    let place = match &*attribute {
        b"lib-name" => &session.library_name,
        b"lib-ver" => &session.library_version,
        other => {
            return Err(format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(other)));
        }
    };
    if !is_name(value) {
        let attribute = String::from_utf8_lossy(&attribute);
        return Err(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        ));
    }
    *place.borrow_mut() = value.into();
    Ok(())
}

/// Returns the connection as `CLIENT INFO` shows it. All names are printable.
fn info_line(session: &Session) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut line = format!("id={}", session.id);
    // Writing to a string does not fail.
    let _ = match session.connection().peer {
        Peer::Address(address) => write!(line, " addr={address}"),
        Peer::User(user) => write!(line, " user-id={user}"),
    };
    let _ = writeln!(
        line,
        " name={} db=0 resp={} lib-name={} lib-ver={}",
        text(&session.name.borrow()),
        session.version.get().number(),
        text(&session.library_name.borrow()),
        text(&session.library_version.borrow()),
    );
    line
}
