//! What a program says on its standard output: an answer, and perhaps what it cost.

use offshoot_agent::Usage;
use offshoot_core::process::{Line, LineReader, TailText};
use offshoot_core::text;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{FieldPath, ProcessSettings};

const CHUNK: usize = 8 * 1024;

/// Reads the standard output of one run, in bounded memory however much comes.
#[derive(Debug)]
pub(crate) struct Answer {
    settings: Reading,
    plain: TailText,
    /// The answer at its path, and how many bytes before it were left out.
    found: Option<(String, u64)>,
    usage: Usage,
    lines: u64,
    too_long: u64,
}

#[derive(Debug)]
struct Reading {
    json: bool,
    answer: Option<FieldPath>,
    input: Option<FieldPath>,
    output: Option<FieldPath>,
    max_answer: usize,
    max_line: usize,
}

impl Answer {
    pub(crate) fn new(settings: &ProcessSettings) -> Self {
        let reading = Reading {
            json: settings.reads_json(),
            answer: settings.answer.clone(),
            input: settings.input_tokens.clone(),
            output: settings.output_tokens.clone(),
            max_answer: settings.max_answer,
            max_line: settings.max_line,
        };
        Self {
            plain: TailText::new(settings.max_answer),
            settings: reading,
            found: None,
            usage: Usage::default(),
            lines: 0,
            too_long: 0,
        }
    }

    /// Reads to the end. What cannot be read is as if it were not there.
    ///
    /// Dropping the future loses at most a line that has not ended.
    pub(crate) async fn read(&mut self, source: impl AsyncRead + Unpin) {
        if self.settings.json {
            self.read_lines(LineReader::new(source, self.settings.max_line))
                .await;
        } else {
            self.read_text(source).await;
        }
    }

    async fn read_text(&mut self, mut source: impl AsyncRead + Unpin) {
        let mut chunk = [0; CHUNK];
        while let Ok(read) = source.read(&mut chunk).await
            && read > 0
        {
            self.plain.push(&chunk[..read]);
        }
        self.plain.finish();
    }

    async fn read_lines<R: AsyncRead + Unpin>(&mut self, mut lines: LineReader<R>) {
        while let Ok(Some(line)) = lines.next().await {
            self.lines += 1;
            match line {
                Line::TooLong { .. } => self.too_long += 1,
                Line::Text(line) => self.take(&line),
            }
        }
    }

    fn take(&mut self, line: &str) {
        let reading = &self.settings;
        if reading.answer.is_none() {
            self.plain.push(line.as_bytes());
            self.plain.push(b"\n");
        }
        // Programs also print lines that are none.
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let at = |path: &Option<FieldPath>| path.as_ref().and_then(|path| path.find(&value));
        if let Some(found) = at(&reading.answer).and_then(words) {
            let kept = text::tail(&found, reading.max_answer);
            let dropped = (found.len() - kept.len()) as u64;
            self.found = Some((kept.to_owned(), dropped));
        }
        if let Some(tokens) = at(&reading.input).and_then(Value::as_u64) {
            self.usage.input = tokens;
        }
        if let Some(tokens) = at(&reading.output).and_then(Value::as_u64) {
            self.usage.output = tokens;
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The answer so far, without the line ends at its end; what is missing of it is said last, where
    /// whoever shows only an end of it shows that too.
    pub(crate) fn text(&self) -> String {
        let (text, dropped) = match (&self.settings.answer, &self.found) {
            (None, _) => {
                let text = self.plain.text().trim_end_matches(['\r', '\n']);
                (text, self.plain.dropped())
            }
            (Some(_), Some((text, dropped))) => (text.as_str(), *dropped),
            (Some(_), None) => ("", 0),
        };
        match dropped {
            0 => text.to_owned(),
            dropped => {
                let newline = if text.ends_with('\n') { "" } else { "\n" };
                format!("{text}{newline}[the first {dropped} bytes of this answer were not kept]")
            }
        }
    }

    /// Why there is no answer where one was to be; `None` when there is one.
    pub(crate) fn missing(&self) -> Option<String> {
        let path = self.settings.answer.as_ref()?;
        if self.found.is_some() {
            return None;
        }
        let lines = self.lines;
        let too_long = match self.too_long {
            0 => String::new(),
            n => {
                let limit = self.settings.max_line;
                format!("; {n} were longer than {limit} bytes and were skipped")
            }
        };
        Some(format!(
            "none of the {lines} lines of its output is JSON with a text at {path}{too_long}"
        ))
    }
}

/// A value as text: an answer may also be a number, or an object.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(settings: &ProcessSettings, output: &str) -> Answer {
        let mut answer = Answer::new(settings);
        answer.read(output.as_bytes()).await;
        answer
    }

    #[tokio::test]
    async fn the_last_line_with_the_field_is_the_answer_and_the_rest_is_noise() {
        let mut settings = ProcessSettings::new("p", "p");
        settings.answer = "item.text".parse().ok();
        settings.input_tokens = "usage.in".parse().ok();
        settings.output_tokens = "usage.out".parse().ok();
        settings.max_line = 200;
        let long = format!("{{\"item\":{{\"text\":\"{}\"}}}}", "x".repeat(200));
        let output = [
            "starting",
            r#"{"item":{"text":"first"}}"#,
            r#"{"item":{"text":"last"}}"#,
            r#"{"item":{"text":null}}"#,
            r#"{"item":"text"}"#,
            r#"{"usage":{"in":7,"out":2}}"#,
            &long,
            r#"{"item":{"te"#,
        ];
        let answer = read(&settings, &output.join("\n")).await;
        assert_eq!(answer.text(), "last");
        assert_eq!(answer.missing(), None);
        assert_eq!((answer.usage().input, answer.usage().output), (7, 2));
        let none = read(&settings, &[output[0], &long].join("\n")).await;
        assert_eq!(
            none.missing().unwrap(),
            "none of the 2 lines of its output is JSON with a text at item.text; 1 were longer than \
             200 bytes and were skipped"
        );
    }

    #[tokio::test]
    async fn a_plain_answer_keeps_its_end_and_says_what_is_missing() {
        let mut settings = ProcessSettings::new("p", "p");
        assert_eq!(
            read(&settings, "two\nlines\r\n\n").await.text(),
            "two\nlines"
        );
        settings.max_answer = 8;
        let answer = read(&settings, "0123456789abcdef").await;
        let note = "[the first 8 bytes of this answer were not kept]";
        assert_eq!(answer.text(), format!("89abcdef\n{note}"));
        settings.answer = "a".parse().ok();
        let answer = read(&settings, "{\"a\": \"0123456789abcde\\n\"}").await;
        assert_eq!(answer.text(), format!("89abcde\n{note}"));
    }

    #[test]
    fn what_is_kept_by_default_fits_a_run_with_its_note() {
        let settings = ProcessSettings::new("p", "p");
        let mut answer = Answer::new(&settings);
        answer.plain.push(&vec![b'x'; 2 * settings.max_answer]);
        let text = answer.text();
        let run = offshoot_subagent::RunResult::new(offshoot_subagent::Outcome::Completed, &text);
        assert_eq!(run.text, text, "nothing more is cut");
        let note = format!(
            "[the first {} bytes of this answer were not kept]",
            settings.max_answer
        );
        assert!(text.ends_with(&note));
    }

    #[tokio::test]
    async fn without_a_path_for_the_answer_the_lines_are_the_answer() {
        let mut settings = ProcessSettings::new("p", "p");
        settings.output_tokens = "n".parse().ok();
        let answer = read(&settings, "{\"n\":3}\nwords\n").await;
        assert_eq!(answer.text(), "{\"n\":3}\nwords");
        assert_eq!(answer.usage().output, 3);
    }
}
