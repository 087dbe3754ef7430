//! `offshoot mcp`: the tools for any MCP client, on stdio or as streamable HTTP.
//!
//! stdout has the protocol and nothing else; on stderr is one line for each thing that the user of the
//! client has to know.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use offshoot::agent::{AgentHandle, SessionStore};
use offshoot::config::{Config, read_text};
use offshoot::driver::script::Gates;
use offshoot::driver::{Model, ScriptedModel};
use offshoot::mcp::{HttpSettings, McpServer, Tokens, check_host};
use offshoot::{Runtime, RuntimeBuilder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::McpArgs;
use crate::fault::Fault;
use crate::run::{Signals, check_resumed, session_id};
use crate::spill::SpillFolder;
use crate::{orphans, output, setup};

const NO_MODEL: &str = "no model is configured, and a subagent needs one: start `offshoot mcp` with \
--script FILE or --model PROVIDER/MODEL, or configure a provider that brings its own agent";

/// Where clients come from.
enum Way {
    Stdio,
    Http(SocketAddr, HttpSettings),
}

/// `offshoot mcp`.
pub(crate) fn mcp(args: McpArgs) -> Result<ExitCode, Fault> {
    let way = way(&args)?;
    let cwd = setup::cwd(args.cwd.as_deref())?;
    let (mut config, model) = model(&args, setup::base(cwd.as_deref()))?;
    setup::end_in_time(&mut config);
    let sync = config.sessions.sync;
    let spill = SpillFolder::of_this_user();
    let mut builder = Runtime::builder(config)
        .guard_commands()
        .below(setup::depth()?)
        .spill(spill.folder());
    if let Some(cwd) = cwd {
        builder = builder.cwd(cwd);
    }
    let resume = args.resume.as_deref().map(session_id).transpose()?;
    match (&args.store, &resume, &way) {
        (Some(folder), resume, way) => {
            let store = setup::store(folder, sync)?;
            if let Some(id) = resume {
                let resumed: Arc<dyn SessionStore> = store.clone();
                check_resumed(&resumed, id, folder)?;
                if matches!(way, Way::Http(..)) {
                    let words = "--resume and --http: expected one of them; a session over HTTP is a new one";
                    return Err(Fault::usage(words));
                }
            }
            builder = builder.store(store as Arc<dyn SessionStore>);
        }
        (None, Some(_), _) => {
            let words = "--resume: expected --store DIR too, the folder that has the session";
            return Err(Fault::usage(words));
        }
        (None, None, _) => {}
    }
    let asynchronous = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let adopting = orphans::adopt(&asynchronous);
    let served = asynchronous.block_on(async {
        // First: a session that is resumed is written to.
        let signals = Signals::listen().context("signals")?;
        let runtime = finish(builder, model);
        let resumed = match &resume {
            Some(id) => Some(runtime.resume_connection(id).map_err(unresumed)?),
            None => None,
        };
        serve(&runtime, way, resumed, signals).await
    });
    // A read of stdin may still be under way, and nobody can end it.
    asynchronous.shutdown_timeout(Duration::from_millis(100));
    drop(adopting);
    drop(spill);
    served.map(|()| ExitCode::SUCCESS)
}

fn unresumed(error: offshoot::agent::OpenError) -> Fault {
    Fault::usage(format_args!("--resume: {error}"))
}

fn finish(builder: RuntimeBuilder, model: Option<Arc<dyn Model>>) -> Runtime {
    match model {
        Some(model) => builder.model(model),
        None => builder.without_model(NO_MODEL),
    }
}

/// The model of subagents, and the configuration that goes with it.
fn model(args: &McpArgs, base: &Path) -> Result<(Config, Option<Arc<dyn Model>>), Fault> {
    if args.model.is_some() && args.script.is_some() {
        return Err(Fault::usage("--script and --model: expected one of them"));
    }
    if args.base_url.is_some() && args.script.is_some() {
        return Err(Fault::usage(
            "--script and --base-url: expected one of them",
        ));
    }
    let Some(path) = &args.script else {
        let mut config = setup::config(&args.config, None, Some(base))?;
        let (name, base_url) = (args.model.as_deref(), args.base_url.as_deref());
        let is_named = name.is_some() || base_url.is_some() || config.model.name.is_some();
        let model = match is_named {
            true => Some(setup::model(&mut config, name, base_url)?),
            false => None,
        };
        return Ok((config, model));
    };
    let script = setup::script(path)?;
    if !script.inputs.is_empty() {
        let path = path.display();
        return Err(Fault::usage(format_args!(
            "{path}: inputs: expected none: the client of `offshoot mcp` is the host"
        )));
    }
    let config = setup::config(&args.config, Some((path, &script)), Some(base))?;
    let model = ScriptedModel::new(&script, Gates::new());
    Ok((config, Some(Arc::new(model))))
}

fn way(args: &McpArgs) -> Result<Way, Fault> {
    let Some(address) = &args.http else {
        if args.http_token_file.is_some() || !args.http_host.is_empty() {
            let words = "--http-token-file and --http-host: expected --http ADDR too";
            return Err(Fault::usage(words));
        }
        return Ok(Way::Stdio);
    };
    let address = listen_address(address).ok_or_else(|| {
        Fault::usage(format_args!(
            "--http: `{address}`: expected ADDRESS:PORT or PORT, for example 127.0.0.1:8080"
        ))
    })?;
    let tokens = match &args.http_token_file {
        Some(path) => tokens(path)?,
        None if address.ip().is_loopback() => Tokens::default(),
        None => {
            return Err(Fault::usage(format_args!(
                "--http: {address} is not a loopback address: expected --http-token-file FILE, with a bearer token a line"
            )));
        }
    };
    if address.ip().is_unspecified() && args.http_host.is_empty() {
        return Err(Fault::usage(format_args!(
            "--http: {address} stands for any address: expected --http-host NAME, the name that clients use"
        )));
    }
    let hosts = args.http_host.clone();
    if let Some(error) = hosts.iter().find_map(|name| check_host(name).err()) {
        return Err(Fault::usage(format_args!("--http-host: {error}")));
    }
    Ok(Way::Http(address, HttpSettings { tokens, hosts }))
}

/// Without an address it is loopback.
fn listen_address(text: &str) -> Option<SocketAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let text = text.trim();
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    match port.parse() {
        Ok(port) => Some(SocketAddr::new(loopback, port)),
        Err(_) => text.parse().ok(),
    }
}

fn tokens(path: &Path) -> Result<Tokens, Fault> {
    let fault = |what: &dyn std::fmt::Display| {
        let path = path.display();
        Fault::usage(format_args!("--http-token-file: {path}: {what}"))
    };
    let text = read_text(path).map_err(|error| fault(&error))?;
    Tokens::parse(&text).map_err(|error| fault(&error))
}

async fn serve(
    runtime: &Runtime,
    way: Way,
    resumed: Option<AgentHandle>,
    mut signals: Signals,
) -> Result<(), Fault> {
    let server = runtime.mcp_server(env!("CARGO_PKG_VERSION"));
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        stopping.cancel();
    });
    match way {
        Way::Stdio => stdio(&server, resumed, stop).await,
        Way::Http(address, settings) => http(&server, address, settings, stop).await,
    }
}

async fn stdio(
    server: &McpServer,
    resumed: Option<AgentHandle>,
    stop: CancellationToken,
) -> Result<(), Fault> {
    output::says_who_is_awaited("an MCP client");
    let (read, write) = (tokio::io::stdin(), tokio::io::stdout());
    let served = server.serve(read, write, resumed, stop).await;
    served.map_err(anyhow::Error::from).map_err(Fault::from)
}

async fn http(
    server: &McpServer,
    address: SocketAddr,
    settings: HttpSettings,
    stop: CancellationToken,
) -> Result<(), Fault> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "; another program listens there: end it, or choose another port (0: any free one)"
            }
            ErrorKind::AddrNotAvailable => "; expected an address of this machine",
            ErrorKind::PermissionDenied => "; expected a port that this user may use",
            _ => "",
        };
        Fault::usage(format_args!("--http: {address}: {error}{advice}"))
    })?;
    let bound = listener.local_addr().context("the listener")?;
    output::note(format_args!("listening on http://{bound}/mcp"));
    let served = server.serve_http(listener, settings, stop).await;
    served.context("http").map_err(Fault::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_loopback() {
        for text in ["8080", ":8080", "localhost:8080", "127.0.0.1:8080"] {
            let address = listen_address(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Some("127.0.0.1:8080"), "{text}");
        }
        let any = listen_address("[::]:80").expect("an address");
        assert!(any.ip().is_unspecified());
        for text in ["", "somewhere:80", "70000", "127.0.0.1", "localhost"] {
            assert_eq!(listen_address(text), None, "{text}");
        }
    }
}
