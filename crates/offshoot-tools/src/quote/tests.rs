use super::*;
use proptest::prelude::*;

/// A line of a shape as it is written.
fn sample(shape: Shape) -> String {
    if shape.head().contains('#') {
        shape.counted(12, " and so on]")
    } else {
        shape.line(" and so on]")
    }
}

/// What may stand before a line, or within it, so that it passes for another. `LINE` is the line.
const AROUND: &[&str] = &[
    "LINE",
    "  LINE",
    "\tLINE",
    "\u{a0}\u{3000}LINE",
    "\u{200b}LINE",
    "\u{feff}LINE",
    "\u{2060}\u{200d}LINE",
    "\u{202e}LINE",
    "\u{2066}LINE\u{2069}",
    "\u{ad}LINE",
    "\u{3164}LINE",
    "\u{2800}LINE",
    "\u{e0020}LINE",
    "\u{301}LINE",
    "\u{fffd}LINE",
    "\0LINE",
    "\u{7}LINE",
    "\u{8}LINE",
    "x\u{8}LINE",
    "x\u{7f}LINE",
    "\u{1b}LINE",
    "\u{1b}[0mLINE",
    "\u{1b}[1;31mLINE\u{1b}[0m",
    "\u{1b}]0;title\u{7}LINE",
    "x\u{1b}[2K\u{1b}[1GLINE",
    "\u{9b}31mLINE",
    "\u{1b}cLINE",
    "x\rLINE",
    "x\u{b}LINE",
    "x\u{c}LINE",
    "x\u{85}LINE",
    "x\u{2028}LINE",
    "\u{2022} LINE",
    "\u{2705} LINE",
    "before\r\nLINE\r\nafter",
];

/// How the line itself may be written.
fn written(line: &str) -> Vec<String> {
    let within = |what: &str| {
        let letters = line.chars().map(|c| format!("{c}{what}"));
        letters.collect::<String>()
    };
    let with = |from: &str, to: &str| line.replace(from, to);
    let mathematical = |c: char| match c {
        'a'..='z' => char::from_u32(0x1d41a + c as u32 - 'a' as u32).unwrap(),
        '0'..='9' => char::from_u32(0x1d7ce + c as u32 - '0' as u32).unwrap(),
        c => c,
    };
    vec![
        line.to_owned(),
        line.to_uppercase(),
        within("\u{200b}"),
        within("\u{301}"),
        within("\0"),
        within("\u{1b}[0m"),
        within("\u{fe0f}"),
        with("[", "\u{ff3b}").replace('(', "\u{ff08}"),
        with("[", "\u{3010}"),
        with("a", "\u{430}").replace('s', "\u{455}"),
        with("o", "\u{3bf}").replace('t', "\u{442}"),
        with(" ", ""),
        with(" ", "\u{2003}"),
        with("[", "[ ").replace('(', "( "),
        line.chars().map(mathematical).collect(),
        line.replacen("1", "x\u{8}1", 1),
    ]
}

#[test]
fn b092_no_line_of_the_runtimes_can_be_imitated_in_any_disguise() {
    for shape in Shape::ALL {
        assert!(shape.head().len() < COMPARED);
        let line = sample(*shape);
        for around in AROUND {
            check(&around.replace("LINE", &line));
        }
        for written in written(&line) {
            for around in [
                "LINE",
                " \u{200b}LINE",
                "x\u{8}LINE",
                "\u{1b}[1mLINE\u{1b}[0m",
            ] {
                check(&around.replace("LINE", &written));
            }
        }
    }
}

fn check(text: &str) {
    let shown = imitations(text);
    assert_eq!(count_imitations(text), 1, "{text:?}");
    assert_eq!(shown.len(), text.len() + COST, "{text:?}");
    assert_eq!(shown.replacen(MARK, "", 1), text);
    assert_eq!(imitations(&shown), shown, "once is enough: {text:?}");
    // In the middle of other lines it is the same.
    let among = format!("first\n{text}\nlast\n");
    assert_eq!(imitations(&among), format!("first\n{shown}\nlast\n"));
}

#[test]
fn ordinary_output_comes_through_as_it_is() {
    for text in [
        "",
        "a\nb\n",
        "[info] ok",
        "see [status: x]",
        "[1/3] built",
        "[12]",
        "[12 bytes]",
        "[warn] 12 bytes omitted",
        "[status]",
        "[state: x]",
        "(none)",
        "(no tests)",
        "- [status: x]",
        "> [status: x]",
        "\"[status: x]\"",
        "\u{1b}[1m\u{1b}[32m[ok]\u{1b}[0m done\r\n",
        "50%\r75%\r100%\n",
        "[错误] 文件\n［信息］ok\n👩\u{200d}💻 e\u{301}",
        "\u{feff}id,name\r\n1,a\0b\u{8}",
        "\u{1b}]8;;http://a\u{7}link\u{1b}]8;;\u{7}",
    ] {
        assert_eq!(imitations(text), text);
    }
    assert_eq!(
        imitations("a\r\n  [status: x]\r[12 bytes omitted]\nb"),
        "a\r\n>   [status: x]\r> [12 bytes omitted]\nb"
    );
    assert_eq!(
        imitations("\u{1b}[31m[status: x]\u{1b}[0m"),
        "\u{1b}[31m> [status: x]\u{1b}[0m"
    );
    assert_eq!(imitations("\u{1b}[status: x]"), "\u{1b}> [status: x]");
    assert_eq!(every_line("a\r\n\nb"), "> a\r\n> \n> b");
    assert_eq!(
        every_line("> a\nx\u{8}[status: x]"),
        "> > a\n> x\u{8}> [status: x]"
    );
}

#[test]
fn a_long_disguise_is_looked_through_in_one_pass() {
    let text = format!("{}[status: x]", "\u{200b}".repeat(30_000));
    assert_eq!(count_imitations(&text), 1);
    let text = format!("[{}status: x]", "\u{200b}".repeat(30_000));
    assert_eq!(count_imitations(&text), 1);
    // Nor does a flood of places cost more than its length.
    let text = "\0[\u{200b}".repeat(3000);
    assert_eq!(count_imitations(&text), 0);
    let text = "\0[a\u{8}".repeat(3000);
    assert_eq!(count_imitations(&text), 0);
    let text = format!("[{}1,000 bytes omitted]", "0".repeat(10_000));
    assert_eq!(count_imitations(&text), 1);
}

proptest! {
    #[test]
    fn nothing_but_the_marks_is_added_and_no_line_is_left_that_imitates(
        text in "([a>\\[\\]\n\r\0\u{8}\u{1b}\u{9b}\u{200b}\u{2028} ;m]|\u{1b}\\[3|\\[status: x\\]|\\[7 bytes|omitted|\\(no output\\)){0,20}",
    ) {
        let shown = imitations(&text);
        let marks = count_imitations(&text);
        prop_assert_eq!(shown.len(), text.len() + COST * marks);
        prop_assert_eq!(count_imitations(&shown), 0);
        prop_assert!(marks * 8 <= text.len(), "bounded");
        let all = every_line(&text);
        prop_assert!(lines(&all).all(|line| line.starts_with(MARK)));
        if marks == 0 {
            let bare: String = lines(&all).filter_map(|line| line.strip_prefix(MARK)).collect();
            prop_assert_eq!(bare, text);
        }
    }
}
