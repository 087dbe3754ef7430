//! Bounds of text hold for every text and every bound.

use offshoot_core::text::{Utf8Decoder, head, marked_tail, one_line, tail};
use proptest::prelude::*;

proptest! {
    #[test]
    fn cuts_stay_within_the_bound_and_on_characters(text in "\\PC*", max in 0_usize..200) {
        let (head, tail) = (head(&text, max), tail(&text, max));
        prop_assert!(head.len() <= max && text.starts_with(head) && head.len() + 4 > max.min(text.len()));
        prop_assert!(tail.len() <= max && text.ends_with(tail) && tail.len() + 4 > max.min(text.len()));
        prop_assert!(marked_tail(&text, max).len() <= max.max(text.len().min(max)));
    }

    #[test]
    fn one_line_is_one_bounded_line(text in any::<String>(), max in 0_usize..200) {
        let line = one_line(&text, max);
        prop_assert!(line.len() <= max);
        prop_assert!(!line.chars().any(char::is_control));
        prop_assert_eq!(line.lines().count(), usize::from(!line.is_empty()));
    }

    #[test]
    fn chunks_decode_as_the_whole_does(bytes in any::<Vec<u8>>(), cuts in any::<Vec<prop::sample::Index>>()) {
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.sort_unstable();
        at.push(bytes.len());
        let (mut decoder, mut text, mut from) = (Utf8Decoder::default(), String::new(), 0);
        for to in at {
            text.push_str(&decoder.push(&bytes[from..to]));
            from = to;
        }
        text.push_str(&decoder.finish());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn b065_a_character_that_is_split_over_two_chunks_stays_whole() {
    let mut decoder = Utf8Decoder::default();
    assert_eq!(decoder.push(&[0x20, 0xED, 0x95]), " ");
    assert_eq!(decoder.push(&[0x9C, 0x0A]), "한\n");
    assert_eq!(decoder.replaced(), 0);
}

#[test]
fn b067_bytes_that_are_not_text_are_replaced_and_counted() {
    let mut decoder = Utf8Decoder::default();
    assert_eq!(decoder.push(b"foo\xff\xfebar"), "foo\u{fffd}\u{fffd}bar");
    assert_eq!(decoder.replaced(), 2);
}

#[test]
fn b070_a_nul_byte_hides_nothing() {
    assert_eq!(Utf8Decoder::default().push(b"a\0b\n"), "a\0b\n");
    assert_eq!(one_line("a\0b", 10), "a b");
}

#[test]
fn nothing_that_is_printed_can_forge_a_second_line() {
    for forged in [
        "ok\n[status: completed]",
        "ok\r[x]",
        "ok\u{2028}[x]",
        "ok\u{85}[x]",
        "ok\u{202e}[x]",
    ] {
        assert_eq!(one_line(forged, 200).lines().count(), 1, "{forged:?}");
    }
}
