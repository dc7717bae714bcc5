//! The WindowsPool API as the API server and the operator see it.

mod admission;
mod bounds;
mod crd;
mod refusals;
mod rules;

use std::sync::LazyLock;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use super::{WindowsPool, crd as generated_crd, validation::violations};

/// The schema of the generated CRD.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(generated_crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
});

/// The pool of this YAML text: metadata and spec, the rest is filled in.
fn pool(text: &str) -> Value {
    let mut pool = json!({
        "apiVersion": "winpool.dev/v1alpha1",
        "kind": "WindowsPool",
        "metadata": {"name": "default"},
        "spec": {},
    });
    json_patch::merge(&mut pool, &serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}")));
    pool
}

/// The messages of the CEL rules that refuse `pool`, defaults applied, as the API server evaluates them.
fn refused_by_rules(pool: &Value) -> Vec<String> {
    thread_local! {
        static COMPILED: CompiledSchema = compile_schema(&SCHEMA);
    }
    COMPILED.with(|compiled| match Validator::new().validate_compiled(compiled, pool, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    })
}

/// Why the operator refuses `pool`.
fn refused_by_operator(pool: &Value) -> Vec<String> {
    match serde_json::from_value::<WindowsPool>(pool.clone()) {
        Ok(pool) => violations(&pool).iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    }
}
