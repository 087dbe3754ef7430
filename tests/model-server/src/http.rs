//! As much of HTTP/1.1 as a model's client needs: one request a connection.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct RawRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads one request. The names of headers are in lower case.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<RawRequest> {
    let mut buffer = Vec::new();
    let head_end = loop {
        if let Some(at) = find(&buffer, b"\r\n\r\n") {
            break at;
        }
        if buffer.len() > MAX_HEAD {
            return Err(invalid("the head is too long"));
        }
        read_more(stream, &mut buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut body = buffer.split_off(head_end + 4);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let header = |name: &str| {
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    if header("transfer-encoding").is_some_and(|encoding| encoding.contains("chunked")) {
        body = read_chunks(stream, body).await?;
    } else {
        let length = header("content-length").map_or(Ok(0), str::parse);
        let length: usize = length.map_err(|_| invalid("content-length is no number"))?;
        if length > MAX_BODY {
            return Err(invalid("the body is too long"));
        }
        while body.len() < length {
            read_more(stream, &mut body).await?;
        }
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(RawRequest {
        method,
        path,
        headers,
        body,
    })
}

async fn read_more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

async fn read_chunks(
    stream: &mut (impl AsyncRead + Unpin),
    mut buffer: Vec<u8>,
) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(at) = find(&buffer, b"\r\n") {
                break at;
            }
            read_more(stream, &mut buffer).await?;
        };
        let size = String::from_utf8_lossy(&buffer[..line_end]).into_owned();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(|_| invalid("a chunk's size is no number"))?;
        if body.len() + size > MAX_BODY {
            return Err(invalid("the body is too long"));
        }
        let chunk_end = line_end + 2 + size;
        while buffer.len() < chunk_end + 2 {
            read_more(stream, &mut buffer).await?;
        }
        body.extend_from_slice(&buffer[line_end + 2..chunk_end]);
        buffer.drain(..chunk_end + 2);
        if size == 0 {
            return Ok(body);
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|at| at == needle)
}

/// The words for a status.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}

/// Writes a whole answer.
pub(crate) async fn write_whole(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\nconnection: close\r\n",
        reason(status)
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// So many at once, with a pause after them.
    pub(crate) slow: Option<(usize, Duration)>,
}

/// A chunked body that is being written.
pub(crate) struct Body<'a, W> {
    stream: &'a mut W,
    pace: Pace,
}

impl<'a, W: AsyncWrite + Unpin> Body<'a, W> {
    pub(crate) async fn begin(
        stream: &'a mut W,
        content_type: &str,
        pace: Pace,
    ) -> io::Result<Self> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        Ok(Self { stream, pace })
    }

    pub(crate) async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (size, pause) = self.pace.slow.unwrap_or((usize::MAX, Duration::ZERO));
        for part in bytes.chunks(size.max(1)) {
            let head = format!("{:x}\r\n", part.len());
            self.stream.write_all(head.as_bytes()).await?;
            self.stream.write_all(part).await?;
            self.stream.write_all(b"\r\n").await?;
            self.stream.flush().await?;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn end(self) -> io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n").await?;
        self.stream.flush().await
    }
}
