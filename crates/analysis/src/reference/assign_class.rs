//! The lists of builds and image tags in the admission policy `assign-class`.

use winpool_core::windows::builds::{self, Product};
use winpool_core::windows::compatibility::can_run;

/// Returns the file of the policy with its variables `tags` and `runsOn` as the table of builds has them. `None` if the file
/// lacks one of them.
pub fn with_builds(policy: &str) -> Option<String> {
    let tags = |release: &Product| release.build.to_string();
    let runs_on = |release: &Product| {
        let hosts = builds::all().iter().filter(|host| can_run(release.build, host.build));
        hosts.map(|host| host.build.to_string()).collect::<Vec<_>>().join(",")
    };
    with_list(&with_list(policy, "tags", tags)?, "runsOn", runs_on)
}

/// Replaces the list of a variable: a row has a value for the release, and the pattern of its images.
fn with_list(policy: &str, variable: &str, value: impl Fn(&Product) -> String) -> Option<String> {
    let start = format!("  - name: {variable}\n    expression: >-\n      [");
    let (head, rest) = policy.split_once(&start)?;
    let (_, tail) = rest.split_once("']]\n")?;
    let releases = builds::all().iter().filter(|product| product.is_ltsc);
    let rows: Vec<String> = releases.map(|release| format!("['{}', '{}']", value(release), pattern(release))).collect();
    Some(format!("{head}{start}{}]\n{tail}", rows.join(",\n      ")))
}

/// Returns the regular expression of the image references, in lower case, that name the release. A tag such as 1809 counts
/// only after a word for Windows, or in Microsoft's repositories.
pub(crate) fn pattern(release: &Product) -> String {
    let tags = release.base_tags.iter().map(|tag| tag.to_lowercase());
    let (numbers, names): (Vec<_>, Vec<_>) = tags.partition(|tag| tag.starts_with(|c: char| c.is_ascii_digit()));
    let build = format!("{}([.][0-9]+)?", release.build.to_string().replace('.', "[.]"));
    let after_windows = numbers.iter().map(|tag| format!("(nanoserver|servercore|windows)[-_.]?{tag}"));
    let words: Vec<String> = names.into_iter().chain([build]).chain(after_windows).collect();
    let by_microsoft =
        numbers.iter().map(|tag| format!("|^mcr[.]microsoft[.]com/windows(/[a-z]+)?:{tag}([-_.][^/:]*)?$"));
    format!(":([^/:]*[-_.])?({})([-_.][^/:]*)?${}", words.join("|"), by_microsoft.collect::<String>())
}
