//! `winpool fix`: the changes that need no decision, as a diff of manifests or as commands for a cluster.

mod files;
mod patches;

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use winpool_analysis::explain::upgrade::upgrade;
use winpool_analysis::fix::{ByHand, Choice, Fix, Fixes, Moves, fixes};
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::Facts;
use winpool_analysis::view::{Position, View, Written};
use winpool_client::terminal::{Outcome, escape_lines};
use winpool_core::api::ObjectReference;
use winpool_core::windows::builds::Product;

use crate::Error;
use crate::commands::options::{Namespaces, Version};
use crate::commands::{values, why};
use crate::print::output::OutputError;
use crate::print::progress;
use crate::read::against::Against;
use crate::read::assume::Assume;
use crate::read::forecast::now;
use crate::read::live;
use crate::read::origin::Origin;
use crate::read::resolve::Resolve;
use crate::read::view::{self, Everything, RulesScope, Seen};

/// Print the changes of workloads that need no decision: a diff of manifests, or commands for a cluster.
///
/// With -f it prints a unified diff for `git apply` and `patch -p1`. Everything outside of the changes stays as it is, byte for byte.
/// With `-f -` it prints the whole stream, changed: a post-renderer of Helm, and a function of kustomize; other files are then only
/// read. Without -f it prints a `kubectl patch` command for each workload of the cluster. It writes nothing.
///
/// It makes the changes of `winpool check` that are certain: the selector of the operating system, which a workload without any sign
/// of Windows gets for Linux, missing tolerations, RuntimeClasses, `os.name`, fields that the API server refuses or Windows ignores,
/// and API versions that are no longer served if only the name changes. Standard error lists the workloads that need your decision.
///
/// Exit code 0: done, also if something needs your decision; 2: you may not list what the answer needs; 1: winpool cannot read or
/// change a part of the manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool fix -f deploy/
  winpool fix -f deploy/ -f windowspool.yaml --only toleration-missing
  winpool fix -f deploy/ --retire 2019 --move-to 2022
  winpool fix deployment/web -n shop
  winpool fix -A --skip linux-may-land-on-windows
  helm template web | winpool fix -f -")]
pub struct Arguments {
    /// Workload to fix, as KIND/NAME or KIND NAME; all if not set.
    #[arg(value_name = "KIND/NAME", num_args = 0..=2)]
    pub object: Vec<String>,
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub namespaces: Namespaces,
    /// Rule whose findings to fix; all if not set. Repeat the flag for several rules.
    #[arg(long, value_name = "RULE", value_parser = values::known_rules(), hide_possible_values = true)]
    pub only: Vec<String>,
    /// Rule whose findings to leave alone. Repeat the flag for several rules.
    #[arg(long, value_name = "RULE", value_parser = values::known_rules(), hide_possible_values = true)]
    pub skip: Vec<String>,
    /// Also change workloads that are only probably for Windows, such as by a word in the name of an image.
    #[arg(long)]
    pub probable: bool,
    /// Version to retire, such as 2019, or its build. Also makes the changes that winpool blockers shows. A workload
    /// moves as a whole: if one of its changes needs your decision, such as the tag of an image, winpool makes none of them.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true, requires = "move_to")]
    pub retire: Option<&'static Product>,
    /// Version to move to.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true, requires = "retire")]
    pub move_to: Option<&'static Product>,
    #[command(flatten)]
    pub version: Version,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub against: Against,
}

impl Arguments {
    fn choice(&self) -> Choice {
        Choice {
            only: self.only.iter().cloned().collect(),
            skip: self.skip.iter().cloned().collect(),
            probable: self.probable,
            any_cluster: !self.origin.files.is_empty() && self.against.against.is_none(),
        }
    }

    /// Returns the changes for another Windows version.
    async fn moves(&self, view: &View, facts: &Facts, stream: &[u8], images: Images) -> Result<Moves, Error> {
        let (retire, target) = (self.retire.map(|product| product.build), self.move_to.map(|product| product.build));
        let mut moves = Moves::default();
        if let Some((retired, target)) = retire.zip(target) {
            moves.away_from(retired, target, view, facts);
        }
        if self.assume.is_wanted() {
            let (files, version) = (&self.origin.files, self.version.kubernetes_version);
            let mut seen = if files.is_empty() {
                view::everything(&live::client(&self.origin.connection).await?, version, false).await?
            } else {
                Seen::of_version::<Everything>(files, stream, version)?
            };
            if let Some(source) = &self.against.against {
                seen = source.decisions().await?.with_applied(seen);
            }
            moves.for_upgrade(upgrade(seen.view, &self.assume.assume, &images, now())?, view);
        }
        Ok(moves)
    }

    async fn read(&self, stream: &[u8]) -> Result<Seen, Error> {
        let version = self.version.kubernetes_version;
        let mut seen = if self.origin.files.is_empty() {
            let client = live::client(&self.origin.connection).await?;
            let namespace = self.namespaces.of(&client);
            view::rules(&client, RulesScope { namespace, version, ..RulesScope::default() }).await?
        } else {
            Seen::of_version::<view::Fixes>(&self.origin.files, stream, version)?
        };
        seen.note_invalid_pools();
        Ok(seen)
    }
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    if let Some((old, new)) = arguments.retire.zip(arguments.move_to).filter(|(old, new)| new.build <= old.build) {
        return Err(Error::OlderTarget { retired: old.name, target: new.name });
    }
    let object = (!arguments.object.is_empty()).then(|| why::workload(&arguments.object)).transpose()?;
    let stream = stream(&arguments.origin.files).map_err(OutputError::from)?;
    let given = stream.as_deref().unwrap_or_default();
    let Seen { mut view, mut gaps } = arguments.against.apply(arguments.read(given).await?).await?;
    let images = arguments.resolve.images(|| view.written.images()).await?;
    gaps.in_registries = images.has_unknown();
    let mut facts = Facts::of(&view);
    facts.read_workloads(&view, now());
    facts.add_images(images.clone());
    let moves = arguments.moves(&view, &facts, given, images).await?;
    if arguments.against.against.is_some() {
        // What is not in the manifests cannot be changed there.
        view.pools.known_mut().into_iter().for_each(|pools| pools.retain(|(source, _)| source.is_some()));
    }
    let mut fixes = progress::during("checking workloads", || fixes(&view, &facts, &arguments.choice(), &moves));
    if let Some((kind, name)) = object {
        only(&mut fixes, &view.written, kind, name)?;
    }
    let text = if arguments.origin.files.is_empty() {
        patches::commands(&mut fixes, &view.written).into_bytes()
    } else {
        let (text, are_complete) = files::changed(&mut fixes, stream.as_deref());
        gaps.in_manifests |= !are_complete;
        text
    };
    print(&text).map_err(OutputError::from)?;
    summarize(&fixes);
    Ok(gaps.outcome(Outcome::Done))
}

/// Reads standard input, if the files contain `-`.
fn stream(files: &[PathBuf]) -> io::Result<Option<Vec<u8>>> {
    let is_wanted = files.iter().any(|file| file == Path::new("-"));
    let read = || {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    };
    is_wanted.then(read).transpose()
}

/// Keeps what concerns one workload. Fails if there is none of this name.
fn only(fixes: &mut Fixes, written: &Written, kind: &'static WorkloadKind, name: &str) -> Result<(), Error> {
    let kind = kind.name;
    let is_named = |object: &ObjectReference| object.kind == kind && object.name == name;
    let mut is_there = fixes.by_hand.iter().any(|(_, by_hand)| is_named(&by_hand.object));
    written.each(|_, workload| is_there |= is_named(&workload.object()));
    fixes.changed.retain(|(_, fix)| is_named(&fix.object));
    fixes.by_hand.retain(|(_, by_hand)| is_named(&by_hand.object));
    if is_there { Ok(()) } else { Err(Error::NotFound { kind, name: name.to_owned() }) }
}

/// Prints the bytes as they are, because a manifest may contain any character. A terminal shows no control characters.
fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shown = if out.is_terminal() {
        escape_lines(&String::from_utf8_lossy(text)).into_owned().into_bytes()
    } else {
        text.to_owned()
    };
    match out.write_all(&shown).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Tells the user which changes rest on a guess, what needs a decision, and the numbers.
fn summarize(fixes: &Fixes) {
    for (source, Fix { object, doubt, .. }) in &fixes.changed {
        if let Some(doubt) = doubt {
            progress::note(&format!("{}{object} is probably for Windows: {doubt}", place(source.as_ref())));
        }
    }
    for (source, ByHand { object, decisions }) in &fixes.by_hand {
        for decision in decisions {
            progress::note(&format!("{}{object}: {decision}", place(source.as_ref())));
        }
    }
    progress::note(&format!("{} changed, {} by hand", fixes.changed.len(), fixes.by_hand.len()));
}

fn place(source: Option<&Position>) -> String {
    source.map_or_else(String::new, |source| format!("{source}: "))
}
