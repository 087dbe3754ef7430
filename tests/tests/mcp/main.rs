//! `offshoot mcp`, driven from outside: by a client that writes plain lines, over HTTP, and by the
//! programs of others.

mod client;
mod ends;
mod fence;
mod http;
mod lines;
mod notices;
mod peers;
mod products;
mod tasks;
