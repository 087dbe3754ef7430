//! The programs, each at an exact version.

use crate::Package;

/// The official Python SDK of MCP, 2025-11-25 generation.
pub const MCP_PYTHON_1: Package = Package::pip("mcp", "1.30.0");

/// The official Python SDK of MCP, 2026-07-28 generation.
pub const MCP_PYTHON_2: Package = Package::pip("mcp", "2.3.0");

/// The inspector's command line (`mcp-inspector --cli`, `mcpdo`).
pub const MCP_INSPECTOR: Package = Package::npm("@modelcontextprotocol/inspector", "2.12.0");

/// The conformance suite of MCP; it needs [`NODE_22`].
pub const MCP_CONFORMANCE: Package =
    Package::npm("@modelcontextprotocol/conformance", "0.2.0-alpha.12");

/// A newer node than a machine may have.
pub const NODE_22: Package = Package::npm("node", "22.23.3");

/// The SDK of the Agent Client Protocol, with its example agent.
pub const ACP_SDK: Package =
    Package::npm("@agentclientprotocol/sdk", "1.9.0").with(&[("zod", "4.6.7")]);

/// A client of the Agent Client Protocol.
pub const ACPX: Package = Package::npm("acpx", "0.19.1");

/// A coding agent that speaks the Agent Client Protocol and is an MCP client.
pub const QWEN: Package = Package::npm("@qwen-code/qwen-code", "0.24.4");

/// Codex behind the Agent Client Protocol.
pub const CODEX_ACP: Package = Package::npm("@agentclientprotocol/codex-acp", "2.6.0");

/// Codex: a program that answers one prompt, and an MCP client.
pub const CODEX: Package = Package::npm("@openai/codex", "0.171.0");

/// OpenAI's Python SDK, which knows the rules of strict schemas.
pub const OPENAI_SDK: Package = Package::pip("openai", "3.57.0");

/// Anthropic's Python SDK.
pub const ANTHROPIC_SDK: Package = Package::pip("anthropic", "2.14.0");

/// Google's Python SDK, which checks function declarations.
pub const GOOGLE_GENAI_SDK: Package = Package::pip("google-genai", "3.6.1");
