//! The Windows versions of the nodes on a time line.

use k8s_openapi::jiff::Unit;
use k8s_openapi::jiff::civil::{Date, date};
use k8s_openapi::jiff::tz::TimeZone;
use maud::{Markup, html};

use super::super::super::{Report, VersionNodes};
use super::super::sentences;
use super::empty::none;

/// The years before the report that the time line shows.
const PAST: i16 = 2;
/// The years in which a report is made.
const FIRST_YEAR: i16 = 2000;
const LAST_YEAR: i16 = 2200;
/// The least number of years after the report.
const FUTURE: i16 = 3;
/// The number of years up to which each has a label.
const LABELS: i16 = 6;

/// The last place where a label fits a narrow window.
const LAST_LABEL: i64 = 880;

/// The years of a time line.
struct Span {
    first: Date,
    last: Date,
    today: Date,
}

impl Span {
    fn of(versions: &[VersionNodes], report: &Report) -> Self {
        let today = report.time.to_zoned(TimeZone::UTC).date();
        // A report in a file may have any day.
        let year = today.year().clamp(FIRST_YEAR, LAST_YEAR);
        let of_version = |version: &VersionNodes| {
            let vendors = version.vendors.iter().flat_map(|vendor| [&vendor.support, &vendor.images]).flatten();
            version.microsoft.iter().chain(vendors).map(|day| day.day.year()).max()
        };
        let last =
            versions.iter().filter_map(of_version).max().unwrap_or_default().clamp(year + FUTURE, LAST_YEAR + FUTURE);
        Self { first: date(year - PAST, 1, 1), last: date(last + 1, 1, 1), today }
    }

    /// The place of a day in thousandths of the time line.
    fn place(&self, day: Date) -> i64 {
        let days = |to: Date| {
            let span = self.first.until((Unit::Day, to));
            span.map_or(0, |span| i64::from(span.get_days()))
        };
        (days(day) * 1000 / days(self.last).max(1)).clamp(0, 1000)
    }

    /// The first days of the years that have a label.
    fn years(&self) -> impl Iterator<Item = Date> {
        let step = if self.last.year() - self.first.year() > LABELS { 2 } else { 1 };
        (self.first.year()..self.last.year()).filter(move |year| year % step == 0).map(|year| date(year, 1, 1))
    }
}

fn left(place: i64) -> String {
    format!("left:{}", percent(place))
}

fn percent(place: i64) -> String {
    format!("{}.{}%", place / 10, place % 10)
}

fn bar(span: &Span, from: Date, to: Date) -> String {
    let (from, to) = (span.place(from), span.place(to));
    format!("{};width:{}", left(from), percent((to - from).max(0)))
}

pub(super) fn versions(versions: &[VersionNodes], report: &Report) -> Markup {
    let span = Span::of(versions, report);
    html! {
        @if versions.is_empty() { (none("There is no Windows node.")) } @else {
            ul.legend aria-hidden="true" {
                li { span.key.main {} "mainstream support by Microsoft" }
                li { span.key.extended {} "extended support" }
                li { span.key.vendor {} "end of support by the vendor" }
                li { span.key.images {} "end of the vendor's node images" }
                li { span.key.today {} "today" }
            }
        }
        @for version in versions { (row(&span, version, report)) }
    }
}

fn row(span: &Span, version: &VersionNodes, report: &Report) -> Markup {
    let (state, style) = sentences::support(version);
    let kubernetes = report.kubernetes.as_deref();
    html! {
        article.version {
            h3 { (version.name()) " " span.chip.(style) { (state) } }
            p { (sentences::nodes(version)) "." }
            @if version.product.is_some() { (line(span, version)) }
            ul.plain {
                li { (sentences::microsoft(version, kubernetes)) }
                @for vendor in &version.vendors {
                    li {
                        (sentences::vendor(vendor, kubernetes))
                        @if let Some((source, checked)) = sentences::source(vendor) {
                            " " a href=(source) rel="noreferrer" { "Source" } " (read on " (checked) ")."
                        }
                    }
                }
            }
        }
    }
}

/// The bar of a version. The list below it says the same.
fn line(span: &Span, version: &VersionNodes) -> Markup {
    let begins = version.available.into_iter().chain(version.microsoft.iter().map(|end| end.day));
    let bars = begins.zip(&version.microsoft).zip(["main", "extended"]);
    html! {
        div.line aria-hidden="true" {
            div.years { @for year in span.years().filter(|year| span.place(*year) <= LAST_LABEL) { span style=(left(span.place(year))) { (year.year()) } } }
            div.track {
                @for year in span.years() { span.tick style=(left(span.place(year))) {} }
                @for ((from, end), style) in bars { span.bar.(style) style=(bar(span, from, end.day)) {} }
                @for vendor in &version.vendors {
                    @if let Some(end) = &vendor.support { span.mark.vendor style=(left(span.place(end.day))) {} }
                    @if let Some(end) = &vendor.images { span.mark.images style=(left(span.place(end.day))) {} }
                }
                span.today style=(left(span.place(span.today))) {}
            }
        }
    }
}
