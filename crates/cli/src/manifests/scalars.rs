//! The scalars of a document.

/// Makes a visitor return `$result` for each boolean, number and string `$value`.
macro_rules! scalars {
    (@ $value:pat => $result:expr, $($visit:ident: $type:ty),+) => {
        $(fn $visit<E>(self, $value: $type) -> Result<Self::Value, E> { Ok($result) })+
    };
    ($value:ident => $result:expr) => {
        scalars!(@ $value => $result, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    };
    ($result:expr) => {
        scalars!(@ _ => $result, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    };
}
