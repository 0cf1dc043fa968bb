//! Codings of bodies: `gzip`, if a header of the checker asks for it. What is checked is the
//! record, in whatever form it was sent.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::message::{BODY_BYTES_MAX, Response};

/// Returns the response with its body decoded. `None`: the body is not what its head says, or it is
/// too long, or it has a coding that the checker did not ask for.
pub(super) fn decoded(response: Response) -> Option<Response> {
    match response.header("content-encoding") {
        None => Some(response),
        // The answer to HEAD, and a 304, have no body.
        Some(coding) if coding.eq_ignore_ascii_case("gzip") => {
            if response.body.is_empty() {
                return Some(response);
            }
            let body = unpacked(&response.body)?;
            Some(Response { body, ..response })
        }
        Some(_) => None,
    }
}

fn unpacked(body: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut decoder = MultiGzDecoder::new(body).take(BODY_BYTES_MAX as u64 + 1);
    decoder.read_to_end(&mut plain).ok()?;
    (plain.len() <= BODY_BYTES_MAX).then_some(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn response(coding: &str, body: Vec<u8>) -> Response {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}");
        Response { body, ..Response::of(&head, "") }
    }

    fn packed(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn a_compressed_body_is_decoded_and_others_stay() {
        let record = b"{\"id\":1}";
        let body = |coding, body| decoded(response(coding, body)).map(|response| response.body);
        assert_eq!(body("gzip", packed(record)).as_deref(), Some(&record[..]));
        assert_eq!(body("GZIP", packed(b"")).as_deref(), Some(&b""[..]));
        assert_eq!(body("gzip", Vec::new()).as_deref(), Some(&b""[..]), "to HEAD");
        let plain = Response::of("HTTP/1.1 200 OK", "x");
        assert_eq!(decoded(plain).map(|response| response.body).as_deref(), Some(&b"x"[..]));
    }

    #[test]
    fn what_is_not_in_its_coding_is_malformed() {
        let whole = packed(b"{\"id\":1}");
        let cut = whole[..whole.len() - 1].to_vec();
        let mut changed = whole.clone();
        let last = changed.len() - 5;
        changed[last] ^= 1;
        for (coding, body) in
            [("gzip", b"{}".to_vec()), ("gzip", cut), ("gzip", changed), ("br", whole)]
        {
            assert!(decoded(response(coding, body.clone())).is_none(), "{coding} {body:?}");
        }
    }
}
