//! Reads the parts of a Markdown page that tests need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub struct Page {
    /// Below the root of the repository.
    pub path: PathBuf,
    /// The cluster for its commands.
    pub scene: Option<String>,
    /// The oldest Kubernetes that prints the shown output, by the minor of 1; 0 for all.
    pub kubernetes: u32,
    pub blocks: Vec<Block>,
    /// The targets of its links and images, with their lines.
    pub links: Vec<(String, usize)>,
    /// The anchors of its headings.
    pub anchors: Vec<String>,
}

pub struct Block {
    pub language: String,
    marks: Vec<String>,
    pub text: String,
    pub line: usize,
    /// The comment right above it.
    pub comment: String,
}

impl Block {
    /// True if it has this mark after its language.
    pub fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|found| found == mark)
    }

    /// The name under which the reader saves it.
    pub fn file(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix("file="))
    }
}

impl Page {
    /// The page at this path below the root.
    pub fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let text = std::fs::read_to_string(Path::new(ROOT).join(&path)).unwrap_or_else(|error| {
            panic!("{}: {error}", path.display());
        });
        Self::parse(path, &text)
    }

    pub fn all() -> Vec<Self> {
        let mut paths = Vec::new();
        collect(Path::new(""), &mut paths);
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    /// The pages that tell users what to do.
    pub fn of_users() -> Vec<Self> {
        let tells = |page: &Self| page.path == Path::new("README.md") || page.path.starts_with("docs/guides");
        Self::all().into_iter().filter(tells).collect()
    }

    fn parse(path: PathBuf, text: &str) -> Self {
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        let mut page =
            Self { path, scene: None, kubernetes: 0, blocks: Vec::new(), links: Vec::new(), anchors: Vec::new() };
        let (mut heading, mut block, mut comment) = (None, None, String::new());
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.push(anchor(&heading.take().unwrap_or_default(), &mut seen));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    block = Some((info.to_string(), String::new(), line(range.start)));
                }
                Event::End(TagEnd::CodeBlock) => {
                    if let Some((info, text, line)) = block.take() {
                        let mut words = info.split(',').map(|word| word.trim().to_owned());
                        let language = words.next().unwrap_or_default();
                        let comment = std::mem::take(&mut comment);
                        page.blocks.push(Block { language, marks: words.collect(), text, line, comment });
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((dest_url.to_string(), line(range.start)));
                }
                Event::Html(html) => {
                    let words = html.trim().strip_prefix("<!--").and_then(|html| html.strip_suffix("-->"));
                    words.unwrap_or_default().trim().clone_into(&mut comment);
                    if let Some(scene) = comment.strip_prefix("scene: ") {
                        page.scene = Some(scene.to_owned());
                    }
                    if let Some(minor) = comment.strip_prefix("kubernetes: 1.") {
                        page.kubernetes = minor.parse().unwrap();
                    }
                }
                Event::Start(Tag::Paragraph) => comment.clear(),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    if let Some((_, text, _)) = &mut block {
                        text.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// As GitHub and mdBook make it: small letters, spaces as hyphens, no punctuation, a number at each repetition.
fn anchor(heading: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let slug = heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    let times = seen.entry(slug.clone()).or_default();
    *times += 1;
    if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(Path::new(ROOT).join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = directory.join(&name);
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, paths);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}
