//! The stock turn driver: model requests, tool calls and their results, and the scripted model.

pub mod script;
