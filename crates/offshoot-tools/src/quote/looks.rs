//! What a character looks like to a reader: nothing, the end of a line, or a plain one.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// Whether somebody may see a new line after it.
pub(super) fn breaks_a_line(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Whether what follows it may be seen at the beginning of a line: it breaks the line, moves the cursor
/// of a terminal, or ends what a program reads.
pub(super) fn ends_a_place(c: char) -> bool {
    breaks_a_line(c) || (c.is_control() && c != '\t')
}

/// Whether it shows nothing, or nothing that counts: white space, controls, marks on other characters,
/// and what fonts leave out.
pub(super) fn is_nothing(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_whitespace() || c.is_ascii_control();
    }
    c.is_whitespace()
        || c.is_control()
        || is_combining_mark(c)
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffd}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Hands out the plain characters that it can be taken for, lower case.
pub(super) fn plainly(c: char, mut to: impl FnMut(char)) {
    if c.is_ascii() {
        to(c.to_ascii_lowercase());
        return;
    }
    decompose_compatible(c, |part| {
        if !is_nothing(part) {
            like(part).to_lowercase().for_each(&mut to);
        }
    });
}

/// Whether it can be taken for one of the brackets that our lines begin with.
pub(super) fn opens(c: char) -> bool {
    let mut first = None;
    plainly(c, |part| first = first.or(Some(part)));
    matches!(first, Some('[' | '('))
}

/// The plain character of the same look, of those that our lines have; else itself.
fn like(c: char) -> char {
    let same = LIKE.iter().find(|(_, others)| others.contains(c));
    same.map_or(c, |(plain, _)| *plain)
}

/// Compatibility forms (full width, mathematical, circled) are decomposed before, and upper case with
/// a look of its own is here beside lower case.
const LIKE: &[(char, &str)] = &[
    ('[', "【〔〖〘〚⟦⟬❲⁅⦋⦍⦏「『｢⎡⎢⎣［﹝"),
    ('(', "⸨❨❪⦅⟮（﹙⁽₍⎛⎜⎝"),
    (']', "】〕〗〙〛⟧⟭❳⁆」』｣］﹞"),
    (')', "⸩❩❫⦆⟯）﹚⁾₎"),
    (':', "։׃܃܄᠃∶ːꓽ：︰﹕⁚"),
    ('a', "аɑαАΑᴀ"),
    ('b', "ЬВΒʙᖯ"),
    ('c', "сϲСϹᴄⅽ"),
    ('d', "ԁժᴅꓒ"),
    ('e', "еҽЕΕᴇ℮ɛε"),
    ('f', "ғϝꞙ"),
    ('g', "ɡցɢ"),
    ('h', "һհНΗʜ"),
    ('i', "іıɩιІΙɪ"),
    ('k', "кκКΚᴋ"),
    ('l', "ӏǀⅼΙ|ʟ"),
    ('m', "мМΜᴍ"),
    ('n', "ոռпΝɴ"),
    ('o', "оοσօОΟᴏ"),
    ('p', "рρРΡᴘ"),
    ('r', "гᴦʀ"),
    ('s', "ѕЅꜱ"),
    ('t', "тτТΤᴛ"),
    ('u', "υսцᴜ"),
    ('w', "ԝшѡᴡω"),
    ('x', "хХχΧ×"),
    ('y', "уүγУΥʏ"),
    ('-', "‐‑‒–—―−"),
];

/// How long the sequence for a terminal at the beginning of `text` is, of whatever kind. Our own mark
/// does not become a part of one.
pub(super) fn sequence_len(text: &str) -> usize {
    match text.as_bytes() {
        [0x1b, b'0'..=b'=' | b'?'..=b'Z' | b'\\'..=b'~', ..] => 2,
        _ => escape_len(text),
    }
}

/// How long the control sequence at the beginning of `text` is; 0 when there is none.
pub(super) fn escape_len(text: &str) -> usize {
    let (introducer, sequence) = match text.as_bytes() {
        [0x1b, b'[', ..] => (1, &text[1..]),
        [0xc2, 0x9b, ..] => return 2 + parameters_len(&text[2..]),
        _ => return 0,
    };
    match parameters_len(&sequence[1..]) {
        0 => introducer,
        length => introducer + 1 + length,
    }
}

/// How long the parameters of a control sequence and its final character are; 0 when there is none.
fn parameters_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let within = bytes.iter().take_while(|byte| matches!(byte, 0x20..=0x3f));
    match within.count() {
        // None is as long as that.
        long if long > 64 => 0,
        length => match bytes.get(length) {
            Some(0x40..=0x7e) => length + 1,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_sequence_is_found_whole_or_not_at_all() {
        for (text, length) in [
            ("\u{1b}[0;31mred", 7),
            ("\u{1b}[mred", 3),
            ("\u{9b}31mred", 5),
            ("\u{1b}[31", 1),
            ("\u{1b}]0;title", 0),
            ("[31m", 0),
            ("", 0),
        ] {
            assert_eq!(escape_len(text), length, "{text:?}");
        }
        assert_eq!(escape_len(&format!("\u{1b}[{}m", "1".repeat(1000))), 1);
    }

    #[test]
    fn letters_that_look_alike_are_plain() {
        let plain = |text: &str| {
            let mut shown = String::new();
            text.chars()
                .for_each(|c| plainly(c, |part| shown.push(part)));
            shown
        };
        assert_eq!(plain("［ѕｔ𝐚ⓣụѕ："), "[status:");
        assert_eq!(plain("STATUS"), "status");
        assert_eq!(plain("错误"), "错误");
        assert!(opens('【') && opens('(') && !opens('{') && !opens('错'));
    }
}
