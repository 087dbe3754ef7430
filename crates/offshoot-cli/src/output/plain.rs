//! Text of models and commands, made fit for a terminal: no control character but line ends and tabs,
//! and no escape sequence. What is not for a terminal is left alone by whoever prints it.

use std::borrow::Cow;

/// The text without escape sequences and control characters. A line end of two characters is one.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unwanted) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\u{1b}' => after_escape(after),
            '\u{9b}' => after_control(after),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => after_string(after),
            c => {
                if !is_unwanted(c) {
                    kept.push(c);
                }
                after
            }
        };
    }
    Cow::Owned(kept)
}

fn is_unwanted(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// What follows the sequence that an escape character began.
fn after_escape(text: &str) -> &str {
    match text.bytes().next() {
        Some(b'[') => after_control(&text[1..]),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => after_string(&text[1..]),
        Some(b' '..=b'/') => {
            let end = text.trim_start_matches(|c| matches!(c, ' '..='/'));
            end.strip_prefix(|c| matches!(c, '0'..='~')).unwrap_or(end)
        }
        Some(b'0'..=b'~') => &text[1..],
        _ => text,
    }
}

/// What follows a control sequence: parameters, intermediate characters, one final character.
fn after_control(text: &str) -> &str {
    let end = text.trim_start_matches(|c| matches!(c, '0'..='?'));
    let end = end.trim_start_matches(|c| matches!(c, ' '..='/'));
    end.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(end)
}

/// What follows a string for the terminal. One that does not end on its line hides nothing.
fn after_string(text: &str) -> &str {
    let end = text.find(|c: char| c.is_control()).unwrap_or(text.len());
    let ends = ["\u{7}", "\u{1b}\\", "\u{9c}"];
    let mut ends = ends
        .iter()
        .filter_map(|mark| text[end..].strip_prefix(mark));
    ends.next().unwrap_or(text)
}

/// JSON that says the same without a raw control character: what JSON itself lets pass is written as
/// an escape.
pub(crate) fn plain_json(json: &[u8]) -> Cow<'_, [u8]> {
    // All of them begin with these bytes: U+007F, and U+0080 to U+009F.
    if !json.contains(&0x7f) && !json.contains(&0xc2) {
        return Cow::Borrowed(json);
    }
    let Ok(text) = std::str::from_utf8(json) else {
        return Cow::Borrowed(json);
    };
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => kept.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => kept.push(c),
        }
    }
    Cow::Owned(kept.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_would_obey_is_taken_out() {
        let cases = [
            ("plain ü → 你\n\ttext", "plain ü → 你\n\ttext"),
            ("a\u{1b}[1;31mred\u{1b}[0m b", "ared b"),
            ("\u{1b}[2J\u{1b}[?25l\u{1b}[38:2:1:2:3mx", "x"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y", "xy"),
            ("\u{9d}52;c;AAAA\u{9c}x\u{9b}31my", "xy"),
            (
                "\u{1b}Pq#0\u{1b}\\x\u{1b}_a\u{1b}\\y\u{1b}(Bz\u{1b}c",
                "xyz",
            ),
            ("a\r\nb\rc\u{8}\u{7}\u{0}\u{7f}\u{85}d", "a\nbcd"),
            // What is not a whole sequence hides nothing.
            ("\u{1b}]0;no end\nx", "0;no end\nx"),
            ("\u{1b}]no end at all", "no end at all"),
            ("\u{1b}[12\nx", "\nx"),
            ("\u{1b}[\u{1b}[31mx", "x"),
            ("\u{1b}üx\u{1b}", "üx"),
            ("\u{1b}]ü\u{1b}[31mx", "üx"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_says_the_same_without_control_characters() {
        let text = "é\u{9b}31m\u{7f}\u{1b}\n";
        let json = serde_json::to_vec(text).expect("JSON");
        let shown = plain_json(&json).into_owned();
        let shown = String::from_utf8(shown).expect("text");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), text);
    }
}
