//! Errors of commands.

use mongodb::bson::{Document, doc};

/// Error in MongoDB's form.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Code that drivers use.
    pub code: i32,
    pub name: &'static str,
    pub message: String,
    /// Labels that permit retries of a driver.
    pub labels: Vec<&'static str>,
}

/// Label: the stream may be resumed.
pub const RESUMABLE: &str = "ResumableChangeStreamError";

impl Failure {
    /// Creates an error with this code;
    /// <https://www.mongodb.com/docs/manual/reference/error-codes/>.
    pub fn new(code: i32, name: &'static str, message: &str) -> Self {
        Self { code, name, message: message.to_owned(), labels: Vec::new() }
    }

    /// Creates the error of a missing privilege.
    pub fn unauthorized(what: &str) -> Self {
        Self::new(13, "Unauthorized", &format!("not authorized on shop to execute command {what}"))
    }

    pub fn bad_value(message: &str) -> Self {
        Self::new(2, "BadValue", message)
    }

    pub fn history_lost() -> Self {
        let text = "Resume of change stream was not possible, as the resume point may no longer \
                    be in the oplog.";
        let labels = vec!["NonResumableChangeStreamError"];
        Self { labels, ..Self::new(286, "ChangeStreamHistoryLost", text) }
    }

    pub fn labelled(mut self, label: &'static str) -> Self {
        self.labels.push(label);
        self
    }

    pub fn reply(&self) -> Document {
        let mut reply =
            doc! { "ok": 0.0, "errmsg": &self.message, "code": self.code, "codeName": self.name };
        if !self.labels.is_empty() {
            reply.insert("errorLabels", self.labels.clone());
        }
        reply
    }
}
