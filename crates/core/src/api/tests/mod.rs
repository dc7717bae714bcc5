//! The WindowsPool API as the API server and the operator see it.

mod admission;
mod bounds;
mod crd;
mod read;
mod rules;

use std::sync::LazyLock;

use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde::Deserialize;
use serde_json::{Value, json};

/// The CRD as `make generate` writes it from the code. Another test compares the file with the code.
static CRD: LazyLock<Value> =
    LazyLock::new(|| serde_yaml::from_str(include_str!("../../../../../crds/winpool.dev_windowspools.yaml")).unwrap());

/// The schema of the CRD.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone());

/// A rule by the beginning of its message, and pools that break it.
#[derive(Deserialize)]
struct Refusal {
    rule: String,
    pools: Vec<Value>,
}

/// A test on the API server reads them too.
fn refusals() -> Vec<Refusal> {
    serde_yaml::from_str(include_str!("refusals.yaml")).unwrap()
}

/// The pool of this YAML text: metadata and spec, the rest is filled in.
fn pool(text: &str) -> Value {
    completed(&serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

fn completed(metadata_and_spec: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "winpool.dev/v1alpha1",
        "kind": "WindowsPool",
        "metadata": {"name": "default"},
        "spec": {},
    });
    json_patch::merge(&mut pool, metadata_and_spec);
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
