//! Entry point of the fuzz target: the bytes of a client. Not in ordinary builds.

use crate::Limits;
use crate::arguments::ArgumentsBuf;
use crate::error::ProtocolError;
use crate::parser::Parser;
use crate::write;

const LIMITS: Limits = Limits { arguments: 16, argument_bytes: 256, command_bytes: 1_024 };

/// Follows every command in the bytes of a connection. The first byte decides how the others are
/// cut into pieces.
///
/// # Panics
/// If pieces are understood differently from the whole, a command is not the same after it was
/// written again, or a limit is exceeded.
pub fn commands(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let whole = follow([stream]);
    let pieces = follow(stream.chunks(usize::from(*cut).max(1)));
    assert_eq!(whole, pieces, "the same bytes in pieces of {cut}");
    for arguments in &whole.0 {
        assert!(arguments.len() <= LIMITS.arguments);
        assert!(arguments.iter().all(|argument| argument.len() <= LIMITS.argument_bytes));
        let mut again = Vec::new();
        write::array(&mut again, arguments.len());
        arguments.iter().for_each(|argument| write::bulk(&mut again, argument));
        if again.len() <= LIMITS.command_bytes {
            assert_eq!(follow([&again[..]]), (vec![arguments.clone()], None));
        }
    }
}

/// Commands, and what has ended the connection.
type Followed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Followed {
    let (mut parser, mut held, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            match parser.parse(&held, &LIMITS) {
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
                Ok(Some(used)) => {
                    let copy: ArgumentsBuf = parser.arguments(&held).to_buf();
                    let arguments = copy.as_arguments();
                    commands.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                    parser.reset();
                    held.drain(..used);
                }
            }
        }
    }
    (commands, None)
}

#[cfg(test)]
mod tests {
    use hotrow_testkit::mutate;

    #[test]
    fn commands_survive_mutations() {
        let pieces: [&[u8]; 10] = [
            b"\r\n",
            b"*3\r\n",
            b"*-1\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"9223372036854775808",
            b"GET a:1\r\n",
            b"\"\\x4",
            b"'",
            b"\0",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/redis_commands");
        mutate::run(folder, 200_000, &pieces, super::commands);
    }
}
