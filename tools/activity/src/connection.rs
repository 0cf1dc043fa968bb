//! A connection that is opened on demand and dropped after an error, within a time limit.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::{FIRST_LOOK_TIME_MAX, LOOK_TIME_MAX};

/// Runs the requests of one probe in the calling thread. The first may take longer, because a
/// connection is opened.
pub(crate) struct Connection<C> {
    runtime: Runtime,
    open: Option<C>,
    limit: Duration,
}

impl<C> Connection<C> {
    pub(crate) fn new() -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        Ok(Self { runtime, open: None, limit: FIRST_LOOK_TIME_MAX })
    }

    /// Sends a request; connects before it if there is no connection.
    pub(crate) fn ask<T>(
        &mut self,
        connect: impl AsyncFnOnce() -> Result<C, String>,
        request: impl AsyncFnOnce(&mut C) -> Result<T, String>,
    ) -> Result<T, String> {
        let Self { runtime, open, limit } = self;
        let limit = std::mem::replace(limit, LOOK_TIME_MAX);
        let taken = open.take();
        let answered = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(limit, async {
                let mut connection = match taken {
                    Some(connection) => connection,
                    None => connect().await?,
                };
                let answer = request(&mut connection).await?;
                Ok((connection, answer))
            })
            .await
        });
        let (connection, answer) =
            answered.unwrap_or_else(|_| Err(format!("no response within {limit:?}")))?;
        self.open = Some(connection);
        Ok(answer)
    }
}

/// Returns a message with its causes: drivers name them separately.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

/// Removes the URL's password from a driver's message.
pub(crate) fn without_password(message: &str, url: &str) -> String {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    // A password may contain `/` or `@` where the URL is wrong: up to the last `@`.
    let user_part = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let password = user_part.split_once(':').map_or("", |(_, password)| password);
    let parameters = url.split(['?', '&']).skip(1);
    let given = parameters.filter_map(|parameter| parameter.strip_prefix("password="));
    let secrets = given.chain([password]).filter(|secret| !secret.is_empty());
    secrets.fold(message.to_owned(), |message, secret| message.replace(secret, "…"))
}
