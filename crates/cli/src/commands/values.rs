//! The values of arguments: how they are parsed, and which ones shells complete.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::{rule, rules};
use winpool_analysis::view;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product};

/// Parses an argument, and suggests values for it. Other values may be valid too.
#[derive(Clone)]
pub struct Suggested<T> {
    parse: fn(&str) -> Result<T, String>,
    values: fn() -> Vec<PossibleValue>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Suggested<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let parse = self.parse;
        StringValueParser::new().try_map(move |text| parse(&text)).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.values)().into_iter()))
    }
}

/// Parses a Windows release, and suggests those with long support.
pub fn releases() -> Suggested<&'static Product> {
    let values = || {
        let ltsc = builds::all().iter().filter(|product| product.is_ltsc);
        ltsc.map(|product| PossibleValue::new(product.version)).collect()
    };
    Suggested { parse: release, values }
}

fn release(text: &str) -> Result<&'static Product, String> {
    let by_build = || text.parse::<Build>().ok().and_then(builds::by_build);
    builds::by_version(&text.to_ascii_lowercase()).or_else(by_build).ok_or_else(|| {
        let versions: Vec<&str> = builds::all().iter().map(|product| product.version).collect();
        format!("write one of {}, or its build", versions.join(", "))
    })
}

/// Parses the name of a rule of `winpool check`, and suggests all of them.
pub fn known_rules() -> Suggested<String> {
    Suggested { parse: known_rule, values: || rules().map(|rule| PossibleValue::new(rule.id)).collect() }
}

fn known_rule(name: &str) -> Result<String, String> {
    rule(name).map(|rule| rule.id.to_owned()).ok_or_else(|| "winpool has no rule with this name".to_owned())
}

/// Parses a version of Kubernetes.
pub fn kubernetes_version(text: &str) -> Result<KubernetesVersion, String> {
    view::kubernetes_version(text).ok_or_else(|| "write it as 1.36".to_owned())
}
