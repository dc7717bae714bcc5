//! Generated pools: refused with a message, or reconciled like any other.

mod applied;
mod dry_run;
mod generator;

/// The first number of the generated specs: always the same, unless `WINPOOL_SEED` is set.
fn first() -> u64 {
    let seed = std::env::var("WINPOOL_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("WINPOOL_SEED is a number"))
}
