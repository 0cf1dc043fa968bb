//! What a command fails with.

use mongodb::bson::{Document, doc};

/// An error as MongoDB tells it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number that drivers go by.
    pub code: i32,
    /// Its name.
    pub name: &'static str,
    /// For people.
    pub message: String,
    /// What a driver may do.
    pub labels: Vec<&'static str>,
}

/// The command may be sent again as it was.
pub(super) const RESUMABLE: &str = "ResumableChangeStreamError";

impl Failure {
    /// An error of this code; <https://www.mongodb.com/docs/manual/reference/error-codes/>.
    pub fn new(code: i32, name: &'static str, message: &str) -> Self {
        Self { code, name, message: message.to_owned(), labels: Vec::new() }
    }

    /// The account may not.
    pub fn unauthorized(what: &str) -> Self {
        Self::new(13, "Unauthorized", &format!("not authorized on shop to execute command {what}"))
    }

    pub(super) fn bad_value(message: &str) -> Self {
        Self::new(2, "BadValue", message)
    }

    pub(super) fn history_lost() -> Self {
        let text = "Resume of change stream was not possible, as the resume point may no longer be in the oplog.";
        let labels = vec!["NonResumableChangeStreamError"];
        Self { labels, ..Self::new(286, "ChangeStreamHistoryLost", text) }
    }

    /// With a label.
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.labels.push(label);
        self
    }

    pub(super) fn reply(&self) -> Document {
        let mut reply = doc! { "ok": 0.0, "errmsg": &self.message, "code": self.code, "codeName": self.name };
        if !self.labels.is_empty() {
            reply.insert("errorLabels", self.labels.clone());
        }
        reply
    }
}
