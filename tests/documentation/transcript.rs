//! Compares the output on a page with the real one.

/// A command with its shown output.
pub struct Step {
    pub command: String,
    /// Empty if it only has to succeed.
    pub shown: Vec<String>,
    /// The line, counted from the fence of its block.
    pub line: usize,
}

/// The commands of a block; one goes on in the next line after a `\`.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (_, Some(step)) if goes_on => {
                step.command.push('\n');
                step.command.push_str(line);
                goes_on = line.ends_with('\\');
            }
            (Some(command), _) => {
                goes_on = command.ends_with('\\');
                steps.push(Step { command: command.to_owned(), shown: Vec::new(), line: number + 1 });
            }
            (None, Some(step)) => step.shown.push(line.to_owned()),
            (None, None) => panic!("a block begins with a command, not with: {line}"),
        }
    }
    steps
}

/// True if these lines match the shown ones.
pub fn agrees(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == "…" => {
            (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| matches(&normalised(line), &normalised(first)) && agrees(rest, others)),
    }
}

/// `…` matches any text.
fn matches(shown: &str, printed: &str) -> bool {
    let Some((start, mut rest)) = shown.split_once('…') else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(start) else { return false };
    while let Some((part, after)) = rest.split_once('…') {
        let Some(found) = printed.find(part) else { return false };
        printed = &printed[found + part.len()..];
        rest = after;
    }
    printed.ends_with(rest)
}

/// The text without ages, times, and the column widths that depend on them.
fn normalised(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let word = |word| match word {
        _ if is_age(word) => "AGE",
        _ if is_time(word) => "TIME",
        _ => word,
    };
    let words: Vec<&str> = line.split_whitespace().map(word).collect();
    format!("{}{}", &line[..indent], words.join(" "))
}

/// `5s`, `3m20s`, `2d`.
fn is_age(word: &str) -> bool {
    let units = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let Some(unit) = units.chars().next() else { return false };
    units.len() < word.len() && "smhd".contains(unit) && (units.len() == 1 || is_age(&units[1..]))
}

/// `2026-01-31T12:00:00Z`.
fn is_time(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    digits >= 14 && word.as_bytes().get(10) == Some(&b'T') && word.ends_with('Z')
}

#[test]
fn commands_are_distinguished_from_their_output() {
    let steps = steps("$ one \\\n    --more\n$ two\nline\n\nother\n");
    assert_eq!(steps[0].command, "one \\\n    --more");
    assert_eq!((steps[1].command.as_str(), steps[1].line), ("two", 3));
    assert_eq!(steps[1].shown, ["line", "", "other"]);
}

#[test]
fn other_lines_are_distinguished_from_other_ages() {
    let same = |shown: &str, printed: &str| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        agrees(&shown, &printed.lines().collect::<Vec<_>>())
    };
    assert!(same("NAME      AGE\ndefault   1s", "NAME      AGE\ndefault   3m20s"));
    assert!(same("at 2026-01-31T12:00:00Z", "at 2027-02-28T01:02:03Z"));
    assert!(same("first\n…\nlast", "first\nlast") && same("first\n…\nlast", "first\nsecond\nthird\nlast"));
    assert!(same("pod/web-… created in … s", "pod/web-abc created in 3 s"));
    assert!(!same("first\n…\nlast", "first\nsecond"));
    assert!(!same("pod/web-… created", "pod/db-abc created"));
    assert!(!same("3 nodes", "4 nodes") && !same("one", "one\ntwo") && !same("one\ntwo", "one"));
    assert!(!same("  indented", "indented") && !same("2022", "2025") && !same("v1s", "v2s"));
}
