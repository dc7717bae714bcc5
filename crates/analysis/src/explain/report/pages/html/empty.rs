//! The text of a section without entries.

use maud::{Markup, html};

pub(super) fn none(text: &str) -> Markup {
    html! { p.none { (text) } }
}
