//! Head of a request: its decoded fields become the text of a head of HTTP/1.1 (RFC 9113
//! section 8.3). What could mean something else there is refused: a line break in a value, a second
//! method, a field of the connection.

/// Text of the head that is being decoded, and memory for it that is used again.
#[derive(Clone, Debug, Default)]
pub struct HeadText {
    /// The text.
    text: Vec<u8>,
    /// Values of the pseudo-fields, one behind the other.
    values: Vec<u8>,
    method: Option<Value>,
    scheme: Option<Value>,
    authority: Option<Value>,
    path: Option<Value>,
    bytes_max: usize,
    /// The request line has been written: a pseudo-field would be too late.
    has_line: bool,
    is_malformed: bool,
    is_too_large: bool,
    /// The target does not belong to the method.
    is_target_wrong: bool,
    /// Bytes of all names and values.
    seen_bytes: usize,
    fields: usize,
    /// `Content-Length`, if it is a number.
    content_length: Option<u64>,
    /// Whether the head is the second of its stream.
    is_trailer: bool,
}

/// Bytes that a field counts for beside its name and value.
const FIELD_BYTES: usize = 32;

/// Place of a value.
#[derive(Clone, Copy, Debug)]
struct Value {
    from: usize,
    to: usize,
}

/// Reason for which there is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// It breaks the protocol: its stream is reset.
    Malformed,
    /// Its target is none of its method, which a proxy passes on as it got it.
    Target,
    /// It is larger than allowed.
    TooLarge,
}

/// What a byte may be in.
mod class {
    /// Names: tokens without upper case.
    pub(super) const NAME: u8 = 1;
    /// Values: no control characters but the tab.
    pub(super) const VALUE: u8 = 2;
    /// Methods, paths and authorities: no white space.
    pub(super) const WORD: u8 = 4;
}

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_control = byte < 0x20 || byte == 0x7f;
        if !is_control || byte == 0x09 {
            classes[byte] |= class::VALUE;
        }
        if !is_control && byte != 0x20 {
            classes[byte] |= class::WORD;
        }
        let is_name = matches!(
            byte as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+'
                | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        if is_name {
            classes[byte] |= class::NAME;
        }
        byte += 1;
    }
    classes
}

fn consists_of(text: &[u8], class: u8) -> bool {
    text.iter().all(|byte| CLASSES[usize::from(*byte)] & class != 0)
}

impl HeadText {
    /// Begins a head with at most `bytes_max` bytes as text.
    pub fn begin(&mut self, bytes_max: usize, is_trailer: bool) {
        let mut text = std::mem::take(&mut self.text);
        let mut values = std::mem::take(&mut self.values);
        text.clear();
        values.clear();
        *self = Self { text, values, bytes_max, is_trailer, ..Self::default() };
    }

    /// Returns the text of a head that has ended well.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns its `Content-Length`.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns whether it is a HEAD request.
    pub fn is_head_request(&self) -> bool {
        self.method.is_some_and(|method| self.value(method) == b"HEAD")
    }

    /// Returns what decoding it has cost: its size as a header list (RFC 9113 section 6.5.2).
    pub fn work(&self) -> usize {
        self.seen_bytes.saturating_add(self.fields * FIELD_BYTES)
    }

    fn value(&self, Value { from, to }: Value) -> &[u8] {
        &self.values[from..to]
    }

    /// Adds a decoded field.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        // A byte of a block can name a field of 4 KiB: far behind the limit none is examined.
        self.seen_bytes = self.seen_bytes.saturating_add(name.len() + value.len());
        self.fields += 1;
        let is_far = self.seen_bytes / 2 > self.bytes_max;
        self.is_too_large |= is_far;
        if self.is_malformed {
            return;
        }
        match name {
            [b':', name @ ..] => self.add_pseudo(name, value),
            _ if is_far => {}
            _ => self.add_field(name, value),
        }
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) {
        let from = self.values.len();
        let fits = from + value.len() <= self.bytes_max;
        let to = if fits { from + value.len() } else { from };
        let place = match name {
            b"method" => &mut self.method,
            b"scheme" => &mut self.scheme,
            b"authority" => &mut self.authority,
            b"path" => &mut self.path,
            _ => {
                self.is_malformed = true;
                return;
            }
        };
        let is_second = place.replace(Value { from, to }).is_some();
        if is_second || self.has_line || self.is_trailer || !consists_of(value, class::WORD) {
            self.is_malformed = true;
        } else if fits {
            self.values.extend_from_slice(value);
        } else {
            self.is_too_large = true;
        }
    }

    fn add_field(&mut self, name: &[u8], value: &[u8]) {
        if !self.has_line && !self.is_trailer {
            self.write_line();
        }
        let is_sound = !name.is_empty()
            && consists_of(name, class::NAME)
            // White space around a value is no part of it, as over HTTP/1.1: libraries send some.
            && consists_of(value, class::VALUE);
        if !is_sound || belongs_to_connection(name, value) {
            self.is_malformed = true;
            return;
        }
        if self.is_trailer {
            return;
        }
        match name {
            b"content-length" => self.content_length = number(value),
            // A field that repeats the authority is the same; any other is a second host.
            b"host" if self.authority.is_some_and(|at| self.value(at) == value) => return,
            _ => {}
        }
        if self.text.len() + name.len() + value.len() > self.bytes_max {
            self.is_too_large = true;
        }
        if self.is_too_large {
            return;
        }
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
    }

    /// Writes the request line and the host, when all pseudo-fields have come.
    fn write_line(&mut self) {
        self.has_line = true;
        let Some(method) = self.method else {
            self.is_malformed = true;
            return;
        };
        let is_connect = self.value(method) == b"CONNECT";
        let target = match (is_connect, self.path, self.scheme, self.authority) {
            (false, Some(path), Some(scheme), _) if is_scheme(self.value(scheme)) => path,
            // Its target is an authority (RFC 9113 section 8.5).
            (true, None, None, Some(authority)) => authority,
            _ => {
                self.is_malformed = true;
                return;
            }
        };
        let is_target = match self.value(target) {
            [b'/', ..] => !is_connect,
            b"*" => self.value(method) == b"OPTIONS",
            // Refused with its stream (RFC 9113 section 8.3.1).
            b"" => {
                self.is_malformed = !self.is_too_large;
                return;
            }
            _ => is_connect,
        };
        self.is_target_wrong = !is_target;
        if self.is_too_large || !is_target {
            return;
        }
        let Self { text, values, .. } = self;
        text.extend_from_slice(&values[method.from..method.to]);
        text.push(b' ');
        text.extend_from_slice(&values[target.from..target.to]);
        text.extend_from_slice(b" HTTP/1.1\r\n");
        if let Some(authority) = self.authority {
            let host = &values[authority.from..authority.to];
            // An empty one names no host (RFC 9110, section 4.2.1). Two are refused with 400.
            for _ in 0..1 + usize::from(host.is_empty()) {
                text.extend_from_slice(b"host: ");
                text.extend_from_slice(host);
                text.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Ends the head.
    ///
    /// # Errors
    /// It is not the head of a request, or the trailer of a body.
    pub fn end(&mut self) -> Result<(), HeadFault> {
        if !self.has_line && !self.is_trailer && !self.is_malformed {
            self.write_line();
        }
        if self.is_malformed {
            return Err(HeadFault::Malformed);
        }
        if self.is_too_large {
            return Err(HeadFault::TooLarge);
        }
        if self.is_target_wrong {
            return Err(HeadFault::Target);
        }
        self.text.extend_from_slice(b"\r\n");
        Ok(())
    }
}

fn is_scheme(scheme: &[u8]) -> bool {
    let in_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(in_scheme)
}

/// Returns whether a field has no place in HTTP/2 (RFC 9113 section 8.2.2).
fn belongs_to_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
            true
        }
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Parses a length. What is none is refused by the parser of the text.
fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
