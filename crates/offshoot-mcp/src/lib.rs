//! The delegation tools, served to any client of the Model Context Protocol.
//!
//! - [`McpServer`]: the tools of one runtime as a server: [`McpServer::serve`] over a pair of streams,
//!   [`McpServer::serve_http`] as streamable HTTP.
//! - A client has no turns of its own. Its *connection* is an agent that is never started: the owner of
//!   everything that the client starts, with an inbox for notices. So the fence, the limits and the
//!   teardown are those of any other owner.
//! - Notices wait in that inbox, and travel with the next result of a tool; a client that asked for log
//!   messages is told at once, too.
//! - A long call of a client that knows tasks becomes one: a task of a registry that has such calls only,
//!   so that it takes no place of a background task, and no tool shows it.
//!
//! What this crate does not do: it runs no model, and it writes no text of a tool.

mod announce;
mod call;
mod connection;
mod handler;
mod http;
mod lines;
mod message;
mod notices;
mod server;
mod tasks;

pub use http::{HttpError, HttpSettings, Tokens, TokensError, check_host};
pub use server::{McpServer, McpSettings, ServerParts};
