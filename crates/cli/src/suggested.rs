//! Arguments of which shells complete the usual values.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

/// Parses an argument, and suggests values for it. Other values may be valid too.
#[derive(Clone)]
pub struct Suggested<T> {
    parse: fn(&str) -> Result<T, String>,
    values: fn() -> Vec<PossibleValue>,
}

impl<T> Suggested<T> {
    pub fn new(parse: fn(&str) -> Result<T, String>, values: fn() -> Vec<PossibleValue>) -> Self {
        Self { parse, values }
    }
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
