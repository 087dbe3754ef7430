//! `offshoot-model-server SCRIPT.json [PORT]`: serves until standard input ends. The first line of its
//! output is its address, such as `http://127.0.0.1:4711`; each request is a line of JSON after it.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use offshoot_model_server::{ModelServer, Script};
use serde_json::json;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            let _ = writeln!(std::io::stderr(), "{what}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: offshoot-model-server SCRIPT.json [PORT]";
    let path = arguments.next().ok_or(usage)?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse());
    let port: u16 = port.map_err(|_| usage)?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let server = ModelServer::start_at(script, port);
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.url("")).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| error.to_string())?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    for number in 0.. {
        let request = runtime.block_on(server.until(|requests| requests.get(number).cloned()));
        let said = request.conversation.unwrap_or_default();
        let line = json!({
            "method": request.method,
            "path": request.path,
            "user": said.last_user,
            "results": said.results,
            "rule": request.rule,
        });
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
        out.flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}
