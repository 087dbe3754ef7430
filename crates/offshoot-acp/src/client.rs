//! What an agent asks of us, and what it is told.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::{Dispatch, Error};
use serde_json::{Value, json};

use crate::turn::Turn;
use crate::wire::Wire;
use crate::{AcpSettings, Files, Permission, files};

/// Our side of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    turn: Mutex<Turn>,
    wire: Wire,
    permission: Permission,
    files: Files,
    folder: PathBuf,
}

impl Client {
    pub(crate) fn new(settings: &AcpSettings, folder: PathBuf, wire: Wire) -> Self {
        Self(Arc::new(Inner {
            turn: Mutex::new(Turn::new(settings.max_answer)),
            wire,
            permission: settings.permission,
            files: settings.files,
            folder,
        }))
    }

    pub(crate) fn turn(&self) -> MutexGuard<'_, Turn> {
        // Nothing that can panic half way runs under this lock.
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What we tell an agent that we can do.
    pub(crate) fn capabilities(&self) -> Value {
        let files = self.0.files;
        json!({
            "fs": {
                "readTextFile": files != Files::None,
                "writeTextFile": files == Files::ReadWrite,
            },
            "terminal": false,
        })
    }

    /// Handles one message, whatever it is. Nothing that an agent sends is an error of the connection.
    pub(crate) async fn handle(&self, message: Dispatch) -> Result<(), Error> {
        match message {
            Dispatch::Request(request, responder) => {
                self.0.wire.asked();
                let answer = self.answer(request.method(), request.params()).await;
                responder.respond_with_result(answer)
            }
            Dispatch::Notification(notification) => {
                if notification.method() == "session/update" {
                    self.turn().update(notification.params());
                }
                Ok(())
            }
            Dispatch::Response(result, router) => router.route_with_result(result),
        }
    }

    async fn answer(&self, method: &str, params: &Value) -> Result<Value, Error> {
        let files = self.0.files;
        let known = match method {
            "session/request_permission" => true,
            "fs/read_text_file" => files != Files::None,
            "fs/write_text_file" => files == Files::ReadWrite,
            _ => false,
        };
        if !known {
            tracing::debug!(method, "an agent asked for what is not there");
            return Err(Error::method_not_found());
        }
        if !self.turn().is_of_session(params) {
            return Err(Error::invalid_params());
        }
        match method {
            "fs/read_text_file" => files::read(&self.0.folder, params).await,
            "fs/write_text_file" => files::write(&self.0.folder, params).await,
            _ => Ok(self.permit(params)),
        }
    }

    fn permit(&self, params: &Value) -> Value {
        let mut turn = self.turn();
        let wanted: &[&str] = match self.0.permission {
            // Who is asked to stop gets no leave to go on.
            _ if turn.cut => &[],
            Permission::Allow => &["allow_once", "allow_always"],
            Permission::Reject => &["reject_once", "reject_always"],
        };
        if self.0.permission == Permission::Reject && !turn.cut {
            turn.denied += 1;
        }
        let options = params.get("options").and_then(Value::as_array);
        let options = options.map(Vec::as_slice).unwrap_or_default();
        let kind = |option: &Value| {
            option
                .get("kind")
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let found = match self.0.permission {
            // "The first option that allows": an agent lists first what it thinks best.
            Permission::Allow => options
                .iter()
                .find(|option| kind(option).is_some_and(|kind| wanted.contains(&kind.as_str()))),
            Permission::Reject => wanted.iter().find_map(|wanted| {
                options
                    .iter()
                    .find(|option| kind(option).as_deref() == Some(wanted))
            }),
        };
        match found.and_then(|option| option.get("optionId")) {
            Some(id) => json!({ "outcome": { "outcome": "selected", "optionId": id } }),
            None => json!({ "outcome": { "outcome": "cancelled" } }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(permission: Permission, cut: bool, kinds: &[&str]) -> Value {
        let mut settings = AcpSettings::new("a", "a");
        settings.permission = permission;
        let client = Client::new(&settings, "/".into(), Wire::default());
        client.turn().cut = cut;
        let options = kinds
            .iter()
            .map(|kind| json!({ "optionId": format!("the-{kind}"), "kind": kind }));
        let answer = client.permit(&json!({ "options": options.collect::<Vec<_>>() }));
        answer["outcome"]
            .get("optionId")
            .cloned()
            .unwrap_or_else(|| answer["outcome"]["outcome"].clone())
    }

    #[test]
    fn s133_permission_is_what_the_settings_say() {
        use Permission::{Allow, Reject};
        let all = ["reject_always", "allow_always", "allow_once", "reject_once"];
        assert_eq!(permit(Reject, false, &all), "the-reject_once");
        assert_eq!(permit(Reject, false, &all[..2]), "the-reject_always");
        assert_eq!(permit(Reject, false, &["allow_once"]), "cancelled");
        assert_eq!(permit(Allow, false, &all), "the-allow_always");
        assert_eq!(permit(Allow, false, &["reject_once"]), "cancelled");
        assert_eq!(permit(Allow, false, &[]), "cancelled");
        assert_eq!(permit(Allow, true, &all), "cancelled");
        assert_eq!(permit(Reject, true, &all), "cancelled");
    }
}
