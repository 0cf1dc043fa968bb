//! Texts of errors. The first word is one of Redis' own where clients react to it as they should;
//! the page `docs/redis.md` lists all of them.

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::shed::ConnectionDisposition;
use hotrow_resp::write;

use super::Replied;
use super::answered::{Answered, CommandRecorder, Received};

/// Status of commands that are not served, as of methods that are not.
pub(super) const NOT_SERVED: u16 = 405;
/// No credential, or one that is no longer good.
pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
/// A refused credential of `AUTH`.
pub(super) const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// Beginning of the reply to a key of no collection.
const NO_COLLECTION: &str = "ERR no such collection";
/// Reply while the process sheds load.
const SHED: &str = "BUSY the service is overloaded and refuses low-priority and costly commands \
    first; try again later";
/// An answer that HTTP would mark as stale.
pub(super) const STALE: &str = "MASTERDOWN the answer in memory is older than this server promises \
    (cache.max_staleness, cache.ttl), and redis.allow_stale is false";

/// Returns the text for a request that is refused.
pub(crate) fn text(error: &HttpError) -> String {
    match error {
        HttpError::Unauthorized(_) => NO_AUTH.to_owned(),
        HttpError::NotGranted(_) | HttpError::Forbidden(_) => with("NOPERM", error),
        HttpError::TooManyRequests(why) => {
            format!("RATELIMIT {}; try again in {} s", why.detail, why.retry_after_s)
        }
        HttpError::TooManyFailures { retry_after_s } => format!(
            "RATELIMIT this client sent too many credentials that were refused; try again in \
             {retry_after_s} s"
        ),
        HttpError::Shed(_) => SHED.to_owned(),
        HttpError::Overloaded(_) | HttpError::NoBodyRoom => with("BUSY", error),
        HttpError::CircuitOpen { retry_after_s } => format!(
            "TRYAGAIN the database failed too often recently, and reads are paused; try again in \
             {retry_after_s} s"
        ),
        HttpError::Unavailable(_) => with("TRYAGAIN", error),
        HttpError::Timeout(_) => with("TIMEOUT", error),
        HttpError::BadId(error) => format!("ERR bad id: {error}"),
        _ => with("ERR", error),
    }
}

fn with(word: &str, error: &HttpError) -> String {
    format!("{word} {}", error.detail())
}

/// Returns the status that the error of a text has over HTTP.
pub(crate) fn status(text: &str) -> u16 {
    match text.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => 401,
        "NOPERM" => 403,
        "RATELIMIT" => 429,
        "BUSY" | "MASTERDOWN" | "TRYAGAIN" => 503,
        "TIMEOUT" => 504,
        _ if text.starts_with(NO_COLLECTION) => 404,
        _ => 400,
    }
}

/// Returns the text for a key whose first part is no collection.
#[cold]
pub(super) fn no_collection(name: &[u8]) -> String {
    /// Most bytes of the name that are shown.
    const SHOWN_BYTES: usize = 64;
    let shown = String::from_utf8_lossy(name.get(..SHOWN_BYTES).unwrap_or(name));
    format!("{NO_COLLECTION} '{shown}': the part of a key before its first colon names one")
}

/// Writes an answer that is no record as the reply to a command. Returns what it says.
pub(crate) fn write(answer: &Answer, out: &mut Vec<u8>) -> Answered {
    let error = match answer {
        Answer::Refused(refusal) => &refusal.error,
        // No command gets these.
        _ => &HttpError::Unreadable,
    };
    write_text(error.status().as_u16(), &text(error), out)
}

/// Writes an error. Returns what it says.
pub(super) fn write_text(status: u16, text: &str, out: &mut Vec<u8>) -> Answered {
    write::error(out, text);
    Answered::error(status, text)
}

impl CommandRecorder {
    /// Replies with an error.
    #[cold]
    pub(super) fn refuse_command<'a>(
        &self,
        received: impl Into<Received<'a>>,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Replied {
        write::error(out, text);
        let received = received.into();
        let status = match received.spec {
            Some(_) => status(text),
            None => NOT_SERVED,
        };
        self.answered_with_error(&received, Answered::error(status, text));
        Replied::Done
    }
}

/// Returns whether the connection must end with this answer: the process has too few descriptors.
pub(super) fn closes((answer, _): &Outcome) -> bool {
    const TOO_FEW: HttpError = HttpError::Shed(ConnectionDisposition::Close);
    matches!(answer, Answer::Refused(refusal) if refusal.error == TOO_FEW)
}

/// Returns the text for a refused credential.
pub(super) fn of_credential(error: &HttpError) -> String {
    match error {
        HttpError::Unauthorized(_) => WRONG_PASS.to_owned(),
        other => text(other),
    }
}

/// Returns the text for a command that is not served, with its first arguments as Redis shows them.
pub(super) fn unknown_command<'a>(
    name: &[u8],
    arguments: impl Iterator<Item = &'a [u8]>,
) -> String {
    /// Most bytes of the name that are shown, and about as many of the arguments.
    const SHOWN_BYTES: usize = 128;
    let shown = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes.get(..SHOWN_BYTES).unwrap_or(bytes)).into_owned()
    };
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name));
    let begin = text.len();
    for argument in arguments {
        if text.len() - begin >= SHOWN_BYTES {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument)));
    }
    text
}

/// Returns the text for a wrong number of arguments; `name` in small letters.
pub(super) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Returns the text for a part of a command that is not served.
pub(super) fn unknown_subcommand(name: Option<&[u8]>, command: &str) -> String {
    /// Most bytes of the name that are shown.
    const SHOWN_BYTES: usize = 128;
    let name = name.unwrap_or_default();
    let shown = String::from_utf8_lossy(name.get(..SHOWN_BYTES).unwrap_or(name));
    format!("ERR unknown subcommand '{shown}'. Try {command} HELP.")
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::KeyError;

    use super::*;
    use hotrow_answer::credential::Denial;

    #[test]
    fn each_refusal_has_the_word_that_the_page_lists() {
        let page = include_str!("../../../../docs/redis.md");
        for (error, word) in [
            (HttpError::Unauthorized(Denial::Key), "NOAUTH"),
            (HttpError::NotGranted("no role"), "NOPERM"),
            (HttpError::TooManyFailures { retry_after_s: 2 }, "RATELIMIT"),
            (HttpError::Overloaded("queue"), "BUSY"),
            (HttpError::NoBodyRoom, "BUSY"),
            (HttpError::Shed(ConnectionDisposition::KeepAlive), "BUSY"),
            (HttpError::CircuitOpen { retry_after_s: 3 }, "TRYAGAIN"),
            (HttpError::Unavailable("the database is not available"), "TRYAGAIN"),
            (HttpError::Timeout("late"), "TIMEOUT"),
            (HttpError::BadId(KeyError::Nul), "ERR"),
            (HttpError::Unreadable, "ERR"),
            (HttpError::BadHeader("no position"), "ERR"),
        ] {
            let from_error = text(&error);
            assert_eq!(from_error.split(' ').next(), Some(word), "{from_error}");
            if word != "ERR" {
                assert_eq!(status(&from_error), error.status().as_u16(), "{from_error}");
            }
            assert!(page.contains(&format!("`{word}")), "{word} is on the page");
        }
        for own in [NO_AUTH, WRONG_PASS, STALE, SHED] {
            assert!(!own.contains("Retry-After"), "there are no header fields");
            let word = own.split(' ').next().unwrap();
            assert!(page.contains(&format!("`{word}")), "{word} is on the page");
        }
    }

    #[test]
    fn other_texts_have_the_status_of_their_kind() {
        for (text, expected) in [
            (WRONG_PASS.to_owned(), 401),
            (STALE.to_owned(), 503),
            (no_collection(b"nothing"), 404),
            (wrong_arity("get"), 400),
            (String::new(), 400),
        ] {
            assert_eq!(status(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_refusal_without_descriptors_ends_the_connection() {
        for (disposition, is_last) in
            [(ConnectionDisposition::KeepAlive, false), (ConnectionDisposition::Close, true)]
        {
            assert_eq!(closes(&Answer::refused(HttpError::Shed(disposition))), is_last);
        }
    }

    #[test]
    fn an_unknown_command_is_shown_as_redis_does() {
        let args = [&b"a"[..], b"b c"];
        assert_eq!(
            unknown_command(b"SET", args.into_iter()),
            "ERR unknown command 'SET', with args beginning with: 'a' 'b c' "
        );
        let long = unknown_command(&[b'x'; 500], std::iter::repeat_n(&[b'y'; 500][..], 9));
        assert!(long.len() < 400, "{}", long.len());
    }
}
