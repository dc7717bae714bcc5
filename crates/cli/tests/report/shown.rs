//! What a browser shows of a page, as text.

/// The elements that begin a line.
const BLOCKS: [&str; 8] = ["h1", "h2", "h3", "h4", "p", "tr", "li", "dt"];

/// Returns the text of a page: a line for each block, and ` | ` between the cells of a row.
pub fn shown(page: &str) -> String {
    let body = page.split_once("</style>").map_or(page, |(_, body)| body);
    let mut text = String::new();
    for part in body.split('<') {
        let (tag, rest) = part.split_once('>').unwrap_or_default();
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if BLOCKS.contains(&name) {
            text.push('\n');
        } else if ["td", "th", "dd"].contains(&name) {
            text.push_str(" | ");
        }
        text.push_str(rest);
    }
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    let text = plain.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let lines = text.lines().map(|line| line.trim().trim_start_matches("| ").trim()).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}
