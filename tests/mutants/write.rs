//! Writes mutants into a source file.

use std::cmp::Reverse;

use crate::find::Mutant;

/// The text with all mutants in it, each behind its question.
pub(crate) fn changed(text: &str, mutants: &[(u32, Mutant)]) -> String {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (order, (number, mutant)) in mutants.iter().enumerate() {
        let asked = |text: &str| text.replace("{}", &format!("crate::mutant_switch::on({number})"));
        let length = mutant.at.len();
        before.push((
            mutant.at.start,
            Reverse(length),
            order,
            asked(mutant.around.0),
        ));
        after.push((
            mutant.at.end,
            length,
            Reverse(order),
            asked(mutant.around.1),
        ));
    }
    // Of parts that begin or end at one byte the larger one is outside.
    before.sort();
    after.sort();
    let before = before.into_iter().map(|(at, _, _, put)| (at, 1, put));
    let mut put: Vec<_> = after
        .into_iter()
        .map(|(at, _, _, put)| (at, 0, put))
        .chain(before)
        .collect();
    put.sort_by_key(|(at, side, _)| (*at, *side));
    let mut all = String::with_capacity(text.len() * 2);
    let mut done = 0;
    for (at, _, what) in put {
        all.push_str(&text[done..at]);
        all.push_str(&what);
        done = at;
    }
    all + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::changed;
    use crate::find::mutants;

    fn numbered(text: &str) -> String {
        let found = mutants(text).expect("it can be parsed");
        let numbered: Vec<_> = (1..).zip(found).collect();
        changed(text, &numbered).replace("crate::mutant_switch::on", "on")
    }

    #[test]
    fn each_mutant_stands_behind_its_question() {
        let text = "fn f(a: u8, b: bool) -> bool { a == 1 && !b }";
        let expected = "fn f(a: u8, b: bool) -> bool {if on(1) { return true; }if on(2) { return false; } \
            (((a == 1) != on(5)) || on(3)) && (((!b) != on(6)) || on(4)) }";
        assert_eq!(numbered(text), expected);
        assert_eq!(mutants(text).expect("it can be parsed").len(), 6);
    }

    #[test]
    fn what_is_no_code_that_runs_stays() {
        for text in [
            "const A: bool = 1 == 2;",
            "const fn f() -> bool { 1 == 2 }",
            "#[cfg(test)]\nmod tests { fn f() -> bool { 1 == 2 } }",
            "struct A([u8; (1 == 2) as usize]);",
        ] {
            assert_eq!(numbered(text), text);
        }
    }

    #[test]
    fn a_condition_with_let_is_changed_beside_it() {
        let written = numbered("fn f(a: Option<u8>) { if let Some(b) = a && b > 1 { g(b); } }");
        syn::parse_file(&written).expect("what is written can be parsed");
        assert!(written.contains("let Some(b) = a && ("), "{written}");
        assert!(written.contains("if !on("), "{written}");
    }

    #[test]
    fn letters_of_several_bytes_move_nothing() {
        let written = numbered("fn f(a: &str) -> bool { a == \"größer…\" || a != \"→\" }");
        syn::parse_file(&written).expect("what is written can be parsed");
        assert!(written.contains("\"größer…\")"), "{written}");
    }
}
