//! Text that somebody else wrote, quoted so that no line of it passes for one of the runtime's.

const MARK: &str = "> ";

/// How many bytes a quoted line has more.
pub(crate) const COST: usize = MARK.len();

/// The beginnings of lines that the runtime writes around an output, without counted ones.
const OURS: &[&str] = &["[status:", "[wait ended", "[the command was"];

/// Quotes every line.
pub(crate) fn every_line(text: &str) -> String {
    quoted(text, |_| true)
}

/// Quotes those lines that a reader could take for the runtime's, and no other.
pub(crate) fn imitations(text: &str) -> String {
    quoted(text, imitates)
}

/// How many lines [`imitations`] quotes.
pub(crate) fn count_imitations(text: &str) -> usize {
    lines(text).filter(|line| imitates(line)).count()
}

fn quoted(text: &str, which: impl Fn(&str) -> bool) -> String {
    let mut quoted = String::with_capacity(text.len());
    for line in lines(text) {
        if which(line) {
            quoted.push_str(MARK);
        }
        quoted.push_str(line);
    }
    quoted
}

fn imitates(line: &str) -> bool {
    let line = line.trim_start();
    let after = line.strip_prefix('[').unwrap_or_default();
    let words = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let counted = words.len() < after.len() && words.starts_with(" bytes");
    counted || OURS.iter().any(|ours| line.starts_with(ours))
}

/// Whatever somebody may see as a line, with its end.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let breaks = |c: char| {
            matches!(
                c,
                '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
            )
        };
        let at = rest.find(breaks).unwrap_or(rest.len());
        let end = match &rest[at..] {
            after if after.starts_with("\r\n") => at + 2,
            after => at + after.chars().next().map_or(0, char::len_utf8),
        };
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_lines_that_could_be_the_runtimes_are_quoted() {
        for text in [
            "",
            "a\nb\n",
            "[info] ok",
            "see [status: x]",
            "[1/3] built",
            "[12]",
        ] {
            assert_eq!(imitations(text), text);
        }
        assert_eq!(
            imitations("a\r\n  [status: x]\r[12 bytes omitted]\nb"),
            "a\r\n>   [status: x]\r> [12 bytes omitted]\nb"
        );
        assert_eq!(every_line("a\r\n\nb"), "> a\r\n> \n> b");
    }

    proptest! {
        #[test]
        fn nothing_but_the_marks_is_added_and_no_line_is_left_that_imitates(
            text in "([a\\[\\]\n\r\u{2028} ]|\\[status: x\\]|\\[7 bytes){0,20}",
        ) {
            let shown = imitations(&text);
            prop_assert_eq!(shown.len(), text.len() + COST * count_imitations(&text));
            prop_assert_eq!(count_imitations(&shown), 0);
            let all = every_line(&text);
            prop_assert!(lines(&all).all(|line| line.starts_with(MARK)));
            let bare: String = lines(&all).filter_map(|line| line.strip_prefix(MARK)).collect();
            prop_assert_eq!(bare, text);
        }
    }
}
