//! winpool's facts and decisions: the `WindowsPool` API, facts about Windows, and the changes of each Node and
//! RuntimeClass.
//!
//! Everything here is a pure function. There is no client, clock, log or metric, so the same input gives the same
//! plan, and the plan for a state that was planned is empty.

/// Declares an enum whose variants have names, with a list of them.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        pub enum $enum { $($(#[$of_variant])* $variant),+ }

        impl $enum {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name, as status, metrics and messages have it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

pub mod api;
pub mod budget;
pub mod election;
pub mod interner;
pub mod labels;
pub mod node;
pub mod plan;
pub mod pod;
pub mod windows;
pub mod words;
