//! `winpool render`: a pool's labels and taints as configuration for the tool that provisions its nodes.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use winpool_analysis::render::{PROVISIONERS, Provisioner, refusal, render, windows_of};
use winpool_client::terminal::{self, Outcome};
use winpool_core::plan::pools::pool::{GuardedPool, Pool};
use winpool_core::windows::builds::Product;

use crate::Error;
use crate::commands::values;
use crate::print::output::{self, OutputError};
use crate::read::origin::Origin;
use crate::read::view::{self, Seen};

/// Print a pool's labels and taints as configuration for the tool that provisions its nodes.
///
/// Nodes then register with the right labels and taints. A comment names every value that winpool does not know.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool render kubelet
  winpool render karpenter --pool default --windows 2022 -f windowspool.yaml")]
pub struct Arguments {
    /// Tool that provisions the nodes.
    #[arg(value_parser = provisioners())]
    pub provisioner: Provisioner,
    /// Pool; required if there are several.
    #[arg(long)]
    pub pool: Option<String>,
    /// Windows version of the nodes, such as 2022; the one whose build the pool selects if not set.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true)]
    pub windows: Option<&'static Product>,
    #[command(flatten)]
    pub origin: Origin,
}

fn provisioners() -> impl TypedValueParser<Value = Provisioner> {
    PossibleValuesParser::new(PROVISIONERS.map(|(_, name, title)| PossibleValue::new(name).help(title))).try_map(
        |name| {
            let named = PROVISIONERS.into_iter().find(|(_, known, _)| *known == name);
            named.map(|(provisioner, ..)| provisioner).ok_or("there is none with this name")
        },
    )
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let Seen { view, gaps } = match arguments.origin.files.as_slice() {
        [] => view::pools(&crate::read::live::client(&arguments.origin.connection).await?).await?,
        files => Seen::decisions_in(files)?,
    };
    let pools: Vec<&GuardedPool> = view.guarded().ok_or(Error::NoPool)?.collect();
    let pool = choose(&pools, arguments.pool.as_deref())?;
    let windows = windows_of(&pool, arguments.windows).map_err(Error::NotRendered)?;
    if let Some(refusal) = windows.and_then(|windows| refusal(arguments.provisioner, windows)) {
        return Err(Error::NotRendered(refusal));
    }
    let text = render(arguments.provisioner, &pool, windows);
    output::emit(&terminal::escape_lines(&text)).map_err(OutputError::from)?;
    Ok(gaps.outcome(Outcome::Done))
}

fn choose(pools: &[&GuardedPool], name: Option<&str>) -> Result<Pool, Error> {
    let selected = pools.iter().filter(|pool| name.is_none_or(|name| pool.metadata.name.as_deref() == Some(name)));
    match (selected.collect::<Vec<_>>().as_slice(), name) {
        ([pool], _) => Ok(pool.read()?),
        (_, Some(name)) => Err(Error::NotFound { kind: "WindowsPool", name: name.to_owned() }),
        (pools, None) => {
            let names = pools.iter().filter_map(|pool| pool.metadata.name.as_deref()).collect::<Vec<_>>().join(", ");
            Err(if names.is_empty() { Error::NotInCluster } else { Error::Ambiguous(names) })
        }
    }
}
