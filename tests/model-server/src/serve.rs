//! One connection: its request, the rule that fits, the answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::answer::{self, Answer};
use crate::conversation::{Conversation, Format};
use crate::http::{self, Body, Pace};
use crate::script::{Fault, Rule};
use crate::state::{Ending, Request, State};

pub(crate) async fn connection(state: Arc<State>, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let (mut reader, mut writer) = stream.split();
    let Ok(request) = http::read_request(&mut reader).await else {
        return;
    };
    let format = Format::of_path(&request.path).filter(|_| request.method == "POST");
    let conversation =
        format.map(|format| Conversation::read(format, &request.path, &request.body));
    let (number, rule) = state.arrived(Request {
        method: request.method,
        path: request.path,
        headers: request.headers,
        body: request.body.clone(),
        conversation: conversation.clone(),
        rule: None,
        ending: Ending::UnderWay,
    });
    let answering = async {
        let (Some(format), Some(conversation)) = (format, conversation) else {
            return http::write_whole(&mut writer, 404, JSON, NOT_HERE).await;
        };
        let Some(rule) = rule else {
            let error = format!(
                "no rule fits the text {:?} with {} results",
                conversation.last_user,
                conversation.results.len()
            );
            let body = json!({"error": {"message": error, "type": "invalid_request_error"}});
            return http::write_whole(&mut writer, 400, JSON, &body.to_string()).await;
        };
        for gate in &rule.await_ {
            state.gate(gate).await;
        }
        let filled = Answer::fill(&rule, &conversation, &request.body, number);
        respond(&mut writer, &rule, &filled, format, conversation.stream).await
    };
    let ending = tokio::select! {
        // What the client sends now is nothing but its end.
        () = until_closed(&mut reader) => Ending::ClientLeft,
        answered = answering => match answered {
            Ok(()) => Ending::Answered,
            Err(_) => Ending::ClientLeft,
        },
    };
    state.ended(number, ending);
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const NOT_HERE: &str = r#"{"error":{"message":"there is nothing here"}}"#;

async fn until_closed(reader: &mut ReadHalf<'_>) {
    let mut ignored = [0; 1024];
    while !matches!(reader.read(&mut ignored).await, Ok(0) | Err(_)) {}
}

async fn respond(
    writer: &mut WriteHalf<'_>,
    rule: &Rule,
    answer: &Answer,
    format: Format,
    stream: bool,
) -> io::Result<()> {
    match &rule.fault {
        Some(Fault::Status {
            code,
            retry_after,
            body,
        }) => {
            let standard = format!(r#"{{"error":{{"message":"scripted status {code}"}}}}"#);
            let mut headers = JSON.to_vec();
            headers.extend(retry_after.as_deref().map(|after| ("retry-after", after)));
            let body = body.as_deref().unwrap_or(&standard);
            return http::write_whole(writer, *code, &headers, body).await;
        }
        Some(Fault::Redirect { location }) => {
            return http::write_whole(writer, 307, &[("location", location)], "").await;
        }
        Some(Fault::Body { text, content_type }) => {
            return http::write_whole(writer, 200, &[("content-type", content_type)], text).await;
        }
        Some(Fault::Drop) => return Ok(()),
        Some(Fault::HangHeaders) => return std::future::pending().await,
        _ => {}
    }
    if !stream {
        let body = answer.whole(format).to_string();
        return http::write_whole(writer, 200, JSON, &body).await;
    }
    stream_answer(writer, rule.fault.as_ref(), answer, format).await
}

async fn stream_answer(
    writer: &mut WriteHalf<'_>,
    fault: Option<&Fault>,
    answer: &Answer,
    format: Format,
) -> io::Result<()> {
    let mut pace = Pace::default();
    if let Some(Fault::Slow { bytes, delay_ms }) = fault {
        pace.slow = Some((*bytes, Duration::from_millis(*delay_ms)));
    }
    let content_type = match format {
        Format::Ollama => "application/x-ndjson",
        _ => "text/event-stream",
    };
    let mut body = Body::begin(writer, content_type, pace).await?;
    if fault == Some(&Fault::Endless) {
        let frame = answer::text_frame(format, "for ever and ");
        loop {
            body.chunk(frame.as_bytes()).await?;
        }
    }
    if fault == Some(&Fault::EndlessLine) {
        body.chunk(b"data: ").await?;
        loop {
            body.chunk(&[b'x'; 4096]).await?;
        }
    }
    let whole = answer.frames(format);
    let kept = match fault {
        Some(Fault::NoEnd) => whole.frames.len() - whole.end,
        _ => whole.frames.len(),
    };
    for (number, frame) in whole.frames[..kept].iter().enumerate() {
        match fault {
            Some(Fault::HangBody { frames }) if *frames == number => {
                return std::future::pending().await;
            }
            // Closing in the middle of a chunked body is a broken connection.
            Some(Fault::Cut { frames }) if *frames == number => return Ok(()),
            Some(Fault::ErrorEvent { frames }) if *frames == number => {
                body.chunk(answer::error_frame(format).as_bytes()).await?;
                return body.end().await;
            }
            Some(Fault::Malformed { frame: bad }) if *bad == number => {
                // The frame without its second half, which is no JSON.
                let text = frame.trim_end();
                let half = text.chars().take(text.chars().count() * 2 / 3);
                let broken: String = half.collect();
                let end = if format == Format::Ollama {
                    "\n"
                } else {
                    "\n\n"
                };
                body.chunk(format!("{broken}{end}").as_bytes()).await?;
            }
            _ => body.chunk(frame.as_bytes()).await?,
        }
    }
    body.end().await
}
