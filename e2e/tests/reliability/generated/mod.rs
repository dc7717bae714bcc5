//! Pools that nobody would write: refused with a message, or done like any other.

mod applied;
mod dry_run;
mod generator;

/// Where the numbers of generated specs begin; the same ones every time, unless `WINPOOL_SEED` says otherwise.
fn first() -> u64 {
    let seed = std::env::var("WINPOOL_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("WINPOOL_SEED is a number"))
}
