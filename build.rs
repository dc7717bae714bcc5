//! Compiles `native/memory.c` into the static program.

fn main() {
    println!("cargo::rerun-if-changed=native/memory.c");
    let musl = std::env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|libc| libc == "musl");
    if musl {
        cc::Build::new()
            .file("native/memory.c")
            .opt_level(2)
            // See `native/memory.c`. The second is unknown to clang, which the first is enough for.
            .flag("-ffreestanding")
            .flag_if_supported("-fno-tree-loop-distribute-patterns")
            .flag("-fno-stack-protector")
            .compile("winpool_memory");
    }
}
