//! The page in a real browser: it fits narrow and wide windows, asks for nothing, and people with disabilities can use it.

use serde_json::Value;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::view::Known;

use winpool_e2e::machine::browser::{Browser, axe};

use super::cluster::{hostile, many, mixed};
use super::{of, of_view, saved, view};

/// Returns the problems that axe-core finds. A page without a script needs no test of scripts.
const PROBLEMS: &str = "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(rule =>
    rule.id + ': ' + rule.nodes.map(node => node.target + ' ' + node.failureSummary).slice(0, 3).join(' | ')))";
/// Opens all lists, so that their contents are looked at too.
const OPEN: &str = "document.querySelectorAll('details').forEach(list => list.open = true)";
/// The elements that are wider than the window.
const TOO_WIDE: &str = "[...document.querySelectorAll('body *')]
    .filter(element => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .filter(element => !element.closest('.track, .years'))
    .map(element => element.outerHTML.slice(0, 120))
    .concat(document.documentElement.scrollWidth > document.documentElement.clientWidth ? ['the page scrolls sideways'] : [])";

#[tokio::test]
#[ignore = "needs Chromium: make verify"]
async fn the_page_is_accessible_and_fits_360_and_1400_pixels_in_light_and_dark() {
    let axe = std::fs::read_to_string(axe().unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let pictures = std::env::var_os("WINPOOL_PICTURES").map(std::path::PathBuf::from);
    let before = serde_json::from_str(&super::json(&of(&mixed()))).unwrap();
    let mut lacking = view(&mixed());
    *lacking.workloads.of_kind(WorkloadKind::own("CronJob").unwrap()) =
        Known::Forbidden("cronjobs.batch is forbidden".to_owned());
    let pages = [
        ("mixed", of(&mixed())),
        ("lacking", of_view(lacking, Some(&before), Vec::new())),
        ("hostile", of(&hostile())),
        ("many", of(&many(50, 200))),
    ];
    let mut browser = Browser::start().await.unwrap();
    let bad = directory.path().join("bad.html");
    std::fs::write(&bad, "<title>a</title><p style='width:2000px;color:#ccc'>grey <img src='data:,'>").unwrap();
    browser.open(&bad, 360, false).await.unwrap();
    browser.evaluate(&format!("{axe}\n;0")).await.unwrap();
    for check in [PROBLEMS, TOO_WIDE] {
        let found = browser.evaluate(check).await.unwrap();
        assert!(
            found.as_array().is_some_and(|found| found.len() > 1),
            "the checks find something on a bad page: {found}"
        );
    }
    for (name, report) in pages {
        let file = saved(&report, directory.path(), &format!("{name}.html"));
        for (width, is_dark) in [(360, false), (360, true), (1400, false), (1400, true)] {
            let what = format!("{name}, {width} pixels, dark: {is_dark}");
            browser.open(&file, width, is_dark).await.unwrap();
            let own = |url: &&String| !url.starts_with("file://") && !url.starts_with("data:");
            assert_eq!(browser.requests.iter().find(own), None, "{what}");
            if let Some(pictures) = &pictures {
                let scheme = if is_dark { "dark" } else { "light" };
                browser.picture(&pictures.join(format!("{name}-{width}-{scheme}.png"))).await.unwrap();
            }
            browser.evaluate(OPEN).await.unwrap();
            assert_eq!(browser.evaluate("innerWidth").await.unwrap(), width, "{what}");
            assert_eq!(browser.evaluate(TOO_WIDE).await.unwrap(), Value::Array(Vec::new()), "{what}");
            assert_eq!(browser.evaluate("document.scripts.length").await.unwrap(), 0, "{what}");
            browser.evaluate(&format!("{axe}\n;0")).await.unwrap();
            assert_eq!(browser.evaluate(PROBLEMS).await.unwrap(), Value::Array(Vec::new()), "{what}");
        }
    }
}
