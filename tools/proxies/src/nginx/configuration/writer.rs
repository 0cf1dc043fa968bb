//! Writer of configuration lines, each with an optional comment above it.

use std::path::Path;

/// Width at which comments wrap.
const WIDTH: usize = 110;
const INDENT: &str = "    ";

pub(super) struct Writer {
    text: String,
    depth: usize,
    comments: bool,
}

impl Writer {
    pub(super) fn new(comments: bool) -> Self {
        Self { text: String::new(), depth: 0, comments }
    }

    /// Writes a directive with its reason, which may be empty.
    pub(super) fn line(&mut self, directive: &str, why: &str) {
        if self.comments {
            for words in wrapped(why, WIDTH.saturating_sub(INDENT.len() * self.depth)) {
                self.put(&format!("# {words}"));
            }
        }
        self.put(directive);
    }

    /// Begins a block.
    pub(super) fn open(&mut self, head: &str, why: &str) {
        self.line(&format!("{head} {{"), why);
        self.depth += 1;
    }

    /// Ends the innermost block.
    pub(super) fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.put("}");
    }

    pub(super) fn text(self) -> String {
        self.text
    }

    fn put(&mut self, line: &str) {
        self.text.push_str(&INDENT.repeat(self.depth));
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Wraps a sentence into lines of at most `width`.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Quotes a path for nginx.
pub(in crate::nginx) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}
