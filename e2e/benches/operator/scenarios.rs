//! The scenarios: the measured values, sizes and targets.

use crate::objects::{self, NODES, PODS, SAMPLE, create, each, served};
use crate::report::Show::{Both, Pairs, Smallest, Winpool};
use crate::report::Target::{AtSize, None, Ratio, Value};
use crate::report::{Report, Row, Series, Turn, Values, quantile, turns};
use crate::stage::{Stage, Writer, measured_by_child};
use crate::{Options, Result, Scenario};
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;
use winpool_e2e::machine::usage::Usage;
use winpool_e2e::scene::program::Program;
use winpool_e2e::servers::requests::Requests;

/// After the last node, winpool reports in the pool's status, once a second at most.
const REPORTED: Duration = Duration::from_millis(2500);
/// After a start, or the last event.
const SETTLED: Duration = Duration::from_secs(1);
/// Nodes of `join` that exist before, so that the RuntimeClass exists and the taint is recorded.
const WARM: usize = 3;
/// Nodes that join behind a backlog, and the time between two of them: all within a second or so.
const LATECOMERS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(20);
/// New pods of `pods`, the time between two of them, and the number of the first.
const NEW_PODS: usize = 1700;
const BETWEEN_NEW_PODS: Duration = Duration::from_micros(11_765);
const FIRST_NEW: usize = 900_000;
const CHURN_PARALLEL: usize = 16;
/// The time after which the last new pods are counted, and the time for which nothing happens then.
const COUNTED: Duration = Duration::from_secs(12);
const REST: Duration = Duration::from_secs(30);

/// One part of a scenario.
pub struct Part {
    pub scenario: Scenario,
    kind: Kind,
    sizes: fn(&Options) -> Vec<usize>,
    rows: &'static [Row],
    /// A value that may not grow with the size.
    growth: Option<Row>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Start,
    Cache,
    Converge,
    Join,
    Storm,
    Backlog,
    Quiet,
    Restart,
    Migration,
    PodTable,
    Pods,
}

const fn part(scenario: Scenario, kind: Kind, sizes: fn(&Options) -> Vec<usize>, rows: &'static [Row]) -> Part {
    Part { scenario, kind, sizes, rows, growth: Option::None }
}

/// The time for which each node has no taint.
macro_rules! latencies {
    ($how:literal, $most:literal) => {
        [
            Row(concat!($how, ": without its taint, p50 (median of turns)"), "ms", "p50", Pairs, None),
            Row(concat!($how, ": without its taint, p99 (median of turns)"), "ms", "p99", Pairs, Ratio($most)),
            Row(concat!($how, ": without its taint, p90 of all turns"), "ms", "node", Both(0.9), None),
            Row(concat!($how, ": without its taint, p99 of all turns"), "ms", "node", Both(0.99), None),
            Row(concat!($how, ": without its taint, longest of all turns"), "ms", "node", Both(1.0), None),
        ]
    };
}

#[rustfmt::skip]
pub const PARTS: &[Part] = &[
    part(Scenario::Start, Kind::Start, |_| vec![0], &[
        Row("start until /metrics answers", "ms", "ms", Pairs, Value(50.0)),
        Row("size of the program", "MB", "program", Winpool(0.5), Value(9.0)),
    ]),
    part(Scenario::Cache, Kind::Cache, |options| options.decoded.clone(), &[
        Row("{size} nodes: JSON of each", "B", "bytes", Winpool(0.5), None),
        Row("{size} nodes: memory of the cache", "MB", "cache", Winpool(0.5), None),
        Row("{size} nodes: for each", "KB", "each", Winpool(0.5), None),
        Row("{size} nodes: memory of the table", "MB", "table", Winpool(0.5), None),
        Row("{size} nodes: memory of the process", "MB", "resident", Winpool(0.5), AtSize(&[(100_000, 150.0)])),
        Row("{size} nodes: peak of the process", "MB", "peak", Winpool(0.5), AtSize(&[(100_000, 200.0)])),
    ]),
    part(Scenario::Converge, Kind::Converge, |options| options.nodes.clone(), &[
        Row("{size} nodes: pool created until the last node is right", "s", "seconds", Pairs, Ratio(1.1)),
        Row("{size} nodes: that time, beside the smallest patches", "s", "seconds", Smallest, Ratio(1.1)),
        Row("{size} nodes: pool created until the first node is right", "s", "first", Pairs, None),
        Row("{size} nodes: the API server's CPU time for each", "ms", "server", Pairs, None),
        Row("{size} nodes: that CPU time, beside the smallest patches", "ms", "server", Smallest, Ratio(1.1)),
        Row("{size} nodes: writes of a node, worst turn", "", "writes", Winpool(1.0), Value(1.0)),
        Row("{size} nodes: all requests", "", "requests", Pairs, None),
        Row("{size} nodes: CPU time", "s", "cpu", Pairs, None),
        Row("{size} nodes: peak memory, worst turn", "MB", "peak", Winpool(1.0), AtSize(&[(1000, 20.0), (5000, 30.0)])),
        Row("{size} nodes: memory afterwards", "MB", "memory", Winpool(0.5), None),
    ]),
    part(Scenario::Join, Kind::Join, |_| vec![WARM], &latencies!("one after the other", 3.0)),
    part(Scenario::Join, Kind::Storm, |_| vec![WARM], &latencies!("{storm} at once", 1.3)),
    part(Scenario::Join, Kind::Backlog, |options| vec![options.backlog], &latencies!("behind a backlog of {size}", 3.0)),
    Part {
        growth: Some(Row("CPU time for each, beside that with a tenth of the nodes", "ms", "cpu each", Pairs, Ratio(1.3))),
        ..part(Scenario::Quiet, Kind::Quiet, |options| vec![(options.largest() / 10).max(1), options.largest()], &[
            Row("{size} nodes, {events} heartbeats: requests that they cause, worst turn", "", "requests", Winpool(1.0), Value(0.0)),
            Row("{size} nodes, {events} heartbeats: CPU time for each", "ms", "cpu each", Pairs, None),
            Row("{size} nodes, {events} heartbeats: memory afterwards", "MB", "memory", Pairs, None),
        ])
    },
    part(Scenario::Restart, Kind::Restart, |options| vec![options.largest()], &[
        Row("{size} nodes: start until ready", "s", "seconds", Pairs, Ratio(2.0)),
        Row("{size} nodes: writes of nodes and classes, worst turn", "", "all writes", Winpool(1.0), Value(0.0)),
    ]),
    part(Scenario::Migration, Kind::Migration, |options| vec![options.largest()], &[
        Row("{size} nodes: taint retired until the last node is right", "s", "seconds", Pairs, Ratio(1.1)),
        Row("{size} nodes: writes of a node, worst turn", "", "writes", Winpool(1.0), Value(1.0)),
    ]),
    part(Scenario::Pods, Kind::PodTable, |options| vec![options.tabled], &[
        Row("{size} generated pods: memory of the table", "MB", "table", Winpool(0.5), AtSize(&[(150_000, 50.0)])),
        Row("{size} generated pods: decoded and shown to the table, each", "µs", "each", Winpool(0.5), Value(100.0)),
    ]),
    part(Scenario::Pods, Kind::Pods, |options| options.watched.clone(), &[
        Row("{size} pods: start until all are counted", "s", "seconds", Winpool(0.5), None),
        Row("{size} pods: CPU time until then", "s", "cpu", Winpool(0.5), None),
        Row("{size} pods: the API server's CPU time until then", "s", "server", Winpool(0.5), None),
        Row("{size} pods: memory afterwards", "MB", "memory", Winpool(0.5), None),
        Row("{size} pods: peak memory, worst turn", "MB", "peak", Winpool(1.0), AtSize(&[(100_000, 96.0)])),
        Row("{size} pods and 85 new ones a second: CPU, of one processor", "%", "share", Winpool(0.5), None),
        Row("{size} pods and 85 new ones a second: the API server's CPU", "%", "server share", Pairs, None),
        Row("{size} pods: requests in 30 s at rest, worst turn", "", "requests", Winpool(1.0), Value(0.0)),
        Row("{size} pods: CPU at rest, of one processor", "%", "rest", Winpool(0.5), None),
    ]),
];

impl Part {
    pub async fn run(&self, options: &Options, program: &Path, report: &mut Report) -> Result<()> {
        report.scenario = self.scenario.name();
        let mut growth = Vec::new();
        for size in (self.sizes)(options) {
            let series = self.measure(options, program, size).await?;
            for row in self.rows {
                report.add(*row, size, &options.fill_in(row.0, size), &series);
            }
            growth.extend(self.growth.map(|row| series.median(row.2)));
        }
        if let (Some(Row(what, unit, _, _, target)), [first, .., last]) = (self.growth, &growth[..]) {
            report.beside(what, unit, *last, *first, target);
        }
        Ok(())
    }

    async fn measure(&self, options: &Options, program: &Path, size: usize) -> Result<Series> {
        let retired = json!([{"key": "os", "value": "Win1809", "effect": "NoSchedule"}]);
        let (nodes, taints, spec) = match self.kind {
            Kind::Start | Kind::Cache | Kind::PodTable => (0, json!([]), json!({})),
            Kind::Pods => (WARM, json!([]), json!({"taintPolicy": "TaintOnly"})),
            Kind::Migration => (size, retired.clone(), json!({"retiredTaints": retired})),
            _ => (size, json!([]), json!({})),
        };
        let stage = Stage::start(program, nodes, taints, spec).await?;
        let mut series = Series::default();
        match self.kind {
            Kind::Cache => {
                let writer = stage.writer(Turn::Winpool, "").await?;
                stage.apply_pool(&json!({})).await?;
                stage.join(SAMPLE..SAMPLE + 1).await?;
                stage.until(1, 1).await?;
                writer.stop().await?;
                let node = served(&stage.client, NODES).await?;
                series.add(Turn::Winpool, &by_child(&stage, "decode-nodes", size, &[node]).await?);
                return Ok(series);
            }
            Kind::Quiet | Kind::Restart => stage.converge().await?,
            Kind::PodTable => {
                create(&stage.client, PODS, &objects::pod(), [SAMPLE]).await?;
                let mut pod = served(&stage.client, PODS).await?;
                // No kubelet runs it.
                pod["status"] = objects::pod()["status"].take();
                series.add(Turn::Winpool, &by_child(&stage, "decode-pod-table", size, &[pod]).await?);
                return Ok(series);
            }
            Kind::Pods => {
                stage.converge().await?;
                create(&stage.client, PODS, &objects::pod(), 0..size).await?;
            }
            Kind::Converge | Kind::Join | Kind::Storm | Kind::Backlog if options.beside > 0 => {
                create(&stage.client, PODS, &objects::pod(), 0..options.beside).await?;
            }
            _ => {}
        }
        // The first turn finds a cold API server and does not count.
        self.turn(options, &stage, Turn::Floor).await?;
        let all = [Turn::Winpool, Turn::Floor, Turn::Smallest];
        let writers = if self.kind == Kind::Converge { &all[..] } else { &all[..2] };
        for turn in turns(options.pairs, writers) {
            series.add(turn, &self.turn(options, &stage, turn).await?);
        }
        Ok(series)
    }

    async fn turn(&self, options: &Options, stage: &Stage, turn: Turn) -> Result<Values> {
        match self.kind {
            Kind::Start => start(stage, turn).await,
            Kind::Restart => restart(stage, turn).await,
            Kind::Quiet => quiet(stage, turn, options.events).await,
            Kind::Pods => pods(stage, turn).await,
            Kind::Join | Kind::Storm | Kind::Backlog => self.join(options, stage, turn).await,
            _ => self.converge(stage, turn).await,
        }
    }

    /// Nodes exist and winpool is idle, then the pool is created or changed. Floors: the same patches, or the smallest
    /// ones, prepared beforehand.
    #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
    async fn converge(&self, stage: &Stage, turn: Turn) -> Result<Values> {
        let mut writer = stage.writer(turn, if turn == Turn::Smallest { "smallest-patch" } else { "patch" }).await?;
        if self.kind == Kind::Migration && turn == Turn::Winpool {
            // The nodes have a taint already: winpool only writes the RuntimeClass, which will tolerate both.
            stage.apply_pool(&json!({})).await?;
            stage.until_ready().await?;
        }
        writer.until_idle().await?;
        let meter = Meter::start(stage, Some(&writer)).await?;
        let server = || Usage::of(stage.server.process().pid()).map(|usage| usage.cpu_seconds);
        let before = server()?;
        stage.begin(&mut writer).await?;
        stage.until(stage.size, stage.size).await?;
        let server = (server()? - before) * 1e3 / stage.size as f64;
        let (first, last) = stage.observer.first_and_last().ok_or("no node is converged")?;
        match turn {
            Turn::Winpool => tokio::time::sleep(REPORTED).await,
            Turn::Floor | Turn::Smallest => writer.done().await?,
        }
        let mut values = meter.stop(stage, &writer).await?;
        values.push(("server", server));
        values.push(("first", (first - meter.start).as_secs_f64()));
        values.push(("seconds", (last - meter.start).as_secs_f64()));
        writer.stop().await?;
        stage.reset().await?;
        Ok(values)
    }

    /// Nodes join. Floor: a client that watches and patches.
    async fn join(&self, options: &Options, stage: &Stage, turn: Turn) -> Result<Values> {
        let mut writer = stage.writer(turn, "watch").await?;
        stage.begin(&mut writer).await?;
        writer.done().await?;
        let first = stage.size;
        let count = match self.kind {
            Kind::Join => options.joins,
            Kind::Storm => options.storm,
            _ => LATECOMERS,
        };
        let joined = first..first + count;
        match self.kind {
            Kind::Backlog => {
                stage.observer.until(|_, converged| converged > 0).await?;
                each(LATECOMERS, joined.clone(), async |number| {
                    tokio::time::sleep(INTERVAL * u32::try_from(number - first)?).await;
                    stage.join(number..number + 1).await
                })
                .await?;
            }
            Kind::Storm => {
                stage.until(first, first).await?;
                stage.join(joined.clone()).await?;
            }
            _ => {
                for number in joined.clone() {
                    stage.until(number, number).await?;
                    stage.join(number..number + 1).await?;
                }
            }
        }
        stage.until(joined.end, joined.end).await?;
        let latencies = stage.observer.latencies(joined);
        writer.stop().await?;
        stage.reset().await?;
        let mut values = vec![("p50", quantile(&latencies, 0.5)), ("p99", quantile(&latencies, 0.99))];
        values.extend(latencies.into_iter().map(|latency| ("node", latency)));
        Ok(values)
    }
}

/// The process starts, until its first answer. Floor: `winpool version`.
#[expect(clippy::cast_precision_loss, reason = "a binary is small")]
async fn start(stage: &Stage, turn: Turn) -> Result<Values> {
    let started = Instant::now();
    let took = match turn {
        Turn::Winpool => {
            let operator = Program::start(&stage.program, &stage.server)?;
            let took = operator.answers("/metrics").await?;
            operator.stop().await?;
            took
        }
        Turn::Floor | Turn::Smallest => {
            Command::new(&stage.program).arg("version").stdout(Stdio::null()).status().await?;
            started.elapsed()
        }
    };
    let size = std::fs::metadata(&stage.program)?.len();
    Ok(vec![("ms", took.as_secs_f64() * 1e3), ("program", size as f64 / 1e6)])
}

/// winpool starts on a converged cluster. Floor: a process that fills the same cache.
async fn restart(stage: &Stage, turn: Turn) -> Result<Values> {
    let meter = Meter::start(stage, Option::None).await?;
    let writer = stage.writer(turn, "cache").await?;
    tokio::time::sleep(3 * SETTLED).await;
    let mut values = meter.stop(stage, &writer).await?;
    values.push(("seconds", writer.ready));
    writer.stop().await?;
    Ok(values)
}

/// Heartbeats on a converged cluster. Floor: the same cache, doing nothing.
#[expect(clippy::cast_precision_loss, reason = "numbers of events are small")]
async fn quiet(stage: &Stage, turn: Turn, events: usize) -> Result<Values> {
    stage.forget_last_seen().await?;
    let writer = stage.writer(turn, "cache").await?;
    tokio::time::sleep(SETTLED).await;
    let (meter, before) = (Meter::start(stage, Some(&writer)).await?, stage.observer.events());
    stage.heartbeats(events).await?;
    tokio::time::sleep(SETTLED).await;
    let seen = stage.observer.events() - before;
    if seen != events {
        return Err(format!("{events} heartbeats made {seen} events").into());
    }
    let mut values = meter.stop(stage, &writer).await?;
    values.push(("cpu each", values[0].1 * 1e3 / events as f64));
    writer.stop().await?;
    Ok(values)
}

/// winpool starts beside many pods, sees new ones, and rests. Floor: the same new pods without winpool.
#[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
async fn pods(stage: &Stage, turn: Turn) -> Result<Values> {
    let server = || Usage::of(stage.server.process().pid()).map(|usage| usage.cpu_seconds);
    if turn != Turn::Winpool {
        let (before, took) = (server()?, churn(stage).await?);
        return Ok(vec![("server share", (server()? - before) / took * 1e2)]);
    }
    stage.delete_pool().await?;
    let (before, started) = (server()?, Instant::now());
    let (operator, _) = stage.operator().await?;
    stage.apply_pool(&json!({"taintPolicy": "TaintOnly"})).await?;
    stage.until_pods_are_counted().await?;
    let seconds = started.elapsed().as_secs_f64();
    let (usage, server_cpu) = (operator.usage()?, server()? - before);
    let mut values = vec![("seconds", seconds), ("cpu", usage.cpu_seconds), ("server", server_cpu)];

    let (before, took) = (server()?, churn(stage).await?);
    values.push(("server share", (server()? - before) / took * 1e2));
    values.push(("share", (operator.usage()?.cpu_seconds - usage.cpu_seconds) / took * 1e2));

    // The last count of what was new.
    tokio::time::sleep(COUNTED).await;
    let (before, usage) = (Requests::until_now(&stage.client).await?, operator.usage()?);
    tokio::time::sleep(REST).await;
    let (requests, after) = (Requests::until_now(&stage.client).await?.since(&before), operator.usage()?);
    eprintln!("    requests at rest: {}", requests.text());
    operator.stop().await?;
    values.push(("requests", requests.total() as f64));
    values.push(("rest", (after.cpu_seconds - usage.cpu_seconds) / REST.as_secs_f64() * 1e2));
    values.extend([("memory", after.resident_mb), ("peak", after.peak_mb)]);
    Ok(values)
}

/// New pods for a while, each created, changed twice and deleted. Returns the seconds that it took.
async fn churn(stage: &Stage) -> Result<f64> {
    let (started, pod) = (Instant::now(), objects::pod());
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    each(CHURN_PARALLEL, FIRST_NEW..FIRST_NEW + NEW_PODS, async |number| {
        let due = started + BETWEEN_NEW_PODS * u32::try_from(number - FIRST_NEW)?;
        tokio::time::sleep_until(due.into()).await;
        create(&stage.client, PODS, &pod, [number]).await?;
        stage.change_and_delete_pod(&objects::numbered(name, number), &pod["status"]).await
    })
    .await?;
    Ok(started.elapsed().as_secs_f64())
}

/// A value that a child of the bench measures.
async fn by_child(stage: &Stage, child: &str, size: usize, templates: &[serde_json::Value]) -> Result<Values> {
    let arguments = [child.to_owned(), size.to_string()].into_iter().chain(templates.iter().map(ToString::to_string));
    let result = measured_by_child(&arguments.collect::<Vec<_>>(), &stage.server).await?;
    if result.get("counted").is_some_and(|counted| *counted != size) {
        return Err(format!("{child} has to count {size} objects: {result}").into());
    }
    let number = |key| Some((key, result.get(key)?.as_f64()?));
    let keys = ["bytes", "cache", "each", "table", "resident", "peak", "seconds", "judging"];
    Ok(keys.into_iter().filter_map(number).collect())
}

/// Measures a writer from here on.
struct Meter {
    requests: Requests,
    cpu: f64,
    start: Instant,
}

impl Meter {
    /// A process without a writer has yet to start.
    async fn start(stage: &Stage, writer: Option<&Writer>) -> Result<Self> {
        let requests = Requests::until_now(&stage.client).await?;
        let cpu = writer.map(Writer::usage).transpose()?.map_or(0.0, |usage| usage.cpu_seconds);
        Ok(Self { requests, cpu, start: Instant::now() })
    }

    /// Returns CPU time first. Heartbeats are the bench's own requests.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    async fn stop(&self, stage: &Stage, writer: &Writer) -> Result<Values> {
        let requests = Requests::until_now(&stage.client).await?.since(&self.requests);
        let usage = writer.usage()?;
        eprintln!("    requests: {}", requests.text());
        let (nodes, classes) = (requests.writes("nodes"), requests.writes("runtimeclasses"));
        Ok(vec![
            ("cpu", usage.cpu_seconds - self.cpu),
            ("memory", usage.resident_mb),
            ("peak", usage.peak_mb),
            ("requests", (requests.total() - requests.of("PATCH nodes/status")) as f64),
            ("writes", nodes as f64 / stage.size as f64),
            ("all writes", (nodes + classes) as f64),
        ])
    }
}
