//! Pods that controllers assemble from fields of their own: those of Argo Workflows, Tekton and Spark, which need no pod template.
//!
//! Sources: argoproj/argo-workflows `pkg/apis/workflow/v1alpha1/workflow_types.go` (`Template`, `WorkflowSpec`) and
//! `workflow/controller/workflowpod.go` (`addSchedulingConstraints`, `processPodSpecPatch`): a field of the template replaces that of
//! the workflow, and `podSpecPatch` is merged last. tektoncd/pipeline `pkg/apis/pipeline/v1/` (`TaskSpec`, `TaskRunSpec`,
//! `PipelineTask`, `PipelineTaskRunSpec`), `pkg/apis/pipeline/pod/template.go` and `docs/windows.md`: the run has the fields of the
//! pod, not the task. Tekton's `v1beta1` has other names for some. kubeflow/spark-operator `api/v1beta2/sparkapplication_types.go`
//! (`SparkPodSpec`) and `internal/webhook/sparkpod_defaulter.go`: the fields of a part go before those of its template.

use serde_json::{Map, Value, json};
use winpool_analysis::kinds::group_of;
use winpool_analysis::workload::{ASSEMBLED, PIECES};

use crate::manifests::values;

/// The fields of a pod spec that they take over under the same name.
const FIELDS: [&str; 10] = [
    "affinity",
    "dnsPolicy",
    "hostNetwork",
    "nodeSelector",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
    "volumes",
];

/// The largest number of pods that are assembled of an object.
const PODS: usize = 64;

/// Returns the object with the pods that its controller creates from it. Other objects stay as they are.
pub(super) fn assembled(mut object: Value) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let pods = match (group_of(text("apiVersion")), text("kind")) {
        ("argoproj.io", "Workflow" | "WorkflowTemplate" | "ClusterWorkflowTemplate") => of_workflow(&object, "spec"),
        ("argoproj.io", "CronWorkflow") => of_workflow(&object, "spec.workflowSpec"),
        ("tekton.dev", "Task" | "ClusterTask") => vec![of_task(&object, "spec", &["spec.podTemplate".to_owned()])],
        ("tekton.dev", "TaskRun") => vec![of_run(&object)],
        ("tekton.dev", "Pipeline") => of_pipeline(&object, "spec"),
        ("tekton.dev", "PipelineRun") => of_pipeline(&object, "spec.pipelineSpec"),
        ("sparkoperator.k8s.io", "SparkApplication") => {
            ["driver", "executor"].map(|part| of_spark(&object, part)).into()
        }
        _ => return object,
    };
    let pods: Vec<Value> = pods.into_iter().filter(|pod| !pod.spec.is_empty()).take(PODS).map(Pod::value).collect();
    if !pods.is_empty() {
        object["spec"] = json!({ ASSEMBLED: pods });
    }
    object
}

/// A pod spec, and the path of each of its parts in the object.
#[derive(Default)]
struct Pod {
    spec: Map<String, Value>,
    metadata: Value,
    pieces: Map<String, Value>,
}

impl Pod {
    /// Returns a pod with the fields at these paths. The first one wins, and fields that nobody has set belong there.
    fn with_fields(object: &Value, paths: &[String]) -> Self {
        let mut pod = Self::default();
        for path in paths {
            for field in FIELDS {
                let value = at(object, &format!("{path}.{field}"));
                if !value.is_null() && !pod.spec.contains_key(field) {
                    pod.set(field, value.clone(), format!("{path}.{field}"));
                }
            }
        }
        pod.pieces.extend(paths.first().map(|path| (String::new(), json!(path))));
        pod
    }

    fn set(&mut self, field: &str, value: Value, path: String) {
        self.spec.insert(field.to_owned(), value);
        self.pieces.insert(field.to_owned(), path.into());
    }

    /// Adds the container at this path, with the fields of `defaults` that it does not have.
    fn add_container(&mut self, list: &str, object: &Value, path: String, defaults: &Value) {
        let Value::Object(own) = at(object, &path) else { return };
        let mut container = defaults.as_object().cloned().unwrap_or_default();
        container.extend(own.clone());
        let containers = self.spec.entry(list).or_insert_with(|| json!([])).as_array_mut();
        let Some(containers) = containers else { return };
        self.pieces.insert(format!("{list}[{}]", containers.len()), path.into());
        containers.push(container.into());
    }

    /// Adds the containers of the list at this path.
    fn add_containers(&mut self, list: &str, object: &Value, path: &str, defaults: &Value) {
        for index in 0..length(object, path) {
            self.add_container(list, object, format!("{path}[{index}]"), defaults);
        }
    }

    /// Merges a patch in YAML or JSON. Patches of containers by their names are left out.
    fn patch(&mut self, object: &Value, path: &str) {
        let read = at(object, path).as_str().and_then(|patch| values(patch).ok());
        for (field, value) in read.into_iter().flatten().filter_map(|patch| patch.as_object().cloned()).flatten() {
            if !["containers", "initContainers"].contains(&field.as_str()) {
                json_patch::merge(self.spec.entry(field.as_str()).or_insert(Value::Null), &value);
                self.pieces.insert(field, path.into());
            }
        }
    }

    fn value(self) -> Value {
        json!({"metadata": self.metadata, "spec": self.spec, PIECES: self.pieces})
    }
}

/// Returns the value at a path such as `spec.templates[0].container`; null if there is none.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    let parts = path.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.fold(object, |value, part| part.parse::<usize>().map_or_else(|_| &value[part], |index| &value[index]))
}

fn length(object: &Value, path: &str) -> usize {
    at(object, path).as_array().map_or(0, Vec::len)
}

/// Returns the pods of the templates of a workflow. Templates of steps and graphs create none of their own.
fn of_workflow(object: &Value, workflow: &str) -> Vec<Pod> {
    let of_template = |index: usize| {
        let template = format!("{workflow}.templates[{index}]");
        let paths = [template.clone(), format!("{workflow}.templateDefaults"), workflow.to_owned()];
        let mut pod = Pod::with_fields(object, &paths);
        // Only podSpecPatch can set it.
        pod.spec.remove("runtimeClassName");
        pod.pieces.remove("runtimeClassName");
        let none = &Value::Null;
        pod.add_container("containers", object, format!("{template}.container"), none);
        pod.add_container("containers", object, format!("{template}.script"), none);
        pod.add_containers("containers", object, &format!("{template}.containerSet.containers"), none);
        let is_one = pod.spec.contains_key("containers");
        pod.add_containers("containers", object, &format!("{template}.sidecars"), none);
        pod.add_containers("initContainers", object, &format!("{template}.initContainers"), none);
        pod.patch(object, &format!("{workflow}.podSpecPatch"));
        pod.patch(object, &format!("{template}.podSpecPatch"));
        let metadata = [format!("{template}.metadata"), format!("{workflow}.podMetadata")];
        if let Some(path) = metadata.iter().find(|path| at(object, path).is_object()) {
            pod.metadata = at(object, path).clone();
            pod.pieces.insert("metadata".to_owned(), json!(path));
        }
        if is_one { pod } else { Pod::default() }
    };
    (0..length(object, &format!("{workflow}.templates"))).map(of_template).collect()
}

/// Returns the pod of the driver or of the executors. It may have a template, and fields for both.
fn of_spark(object: &Value, part: &str) -> Pod {
    let part = format!("spec.{part}");
    let mut pod = Pod::with_fields(object, &[part.clone(), format!("{part}.template.spec"), "spec".to_owned()]);
    // That of the part is for its container.
    pod.spec.remove("securityContext");
    pod.pieces.remove("securityContext");
    let image = [part.as_str(), "spec"].into_iter().find(|path| at(object, &format!("{path}.image")).is_string());
    if let Some(path) = image {
        let image = at(object, &format!("{path}.image")).clone();
        pod.spec.insert("containers".to_owned(), json!([{"name": "spark", "image": image}]));
        pod.pieces.insert("containers[0]".to_owned(), path.into());
    }
    pod
}

/// Returns the pod of the steps of a task, with the fields at `paths`.
fn of_task(object: &Value, task: &str, paths: &[String]) -> Pod {
    let mut pod = Pod::with_fields(object, &[paths, &[task.to_owned()]].concat());
    pod.add_containers("containers", object, &format!("{task}.steps"), at(object, &format!("{task}.stepTemplate")));
    pod.add_containers("containers", object, &format!("{task}.sidecars"), &Value::Null);
    pod
}

/// Returns the pod of a run. If it refers to a task, the containers are known as soon as Tekton has found the task.
fn of_run(object: &Value) -> Pod {
    let is_here = at(object, "spec.taskSpec").is_object();
    let task = if is_here { "spec.taskSpec" } else { "status.taskSpec" };
    of_task(object, task, &["spec.podTemplate".to_owned(), "spec".to_owned()])
}

/// Returns the pods of the tasks of a pipeline that have their steps in it, and those with fields of the run.
fn of_pipeline(object: &Value, pipeline: &str) -> Vec<Pod> {
    let lists = ["tasks", "finally"].map(|list| format!("{pipeline}.{list}"));
    let tasks = lists.iter().flat_map(|list| (0..length(object, list)).map(move |index| format!("{list}[{index}]")));
    let mut pods: Vec<Pod> = tasks
        .map(|task| {
            let name = at(object, &format!("{task}.name"));
            let mut paths = of_tasks(object, |spec| at(object, &format!("{spec}.pipelineTaskName")) == name);
            paths.extend(OF_ALL.map(str::to_owned));
            of_task(object, &format!("{task}.taskSpec"), &paths)
        })
        .collect();
    if pods.is_empty() {
        // A run that refers to a pipeline.
        let paths = of_tasks(object, |_| true);
        pods.extend(paths.iter().map(|path| Pod::with_fields(object, std::slice::from_ref(path))));
        pods.push(Pod::with_fields(object, &OF_ALL.map(str::to_owned)));
    }
    pods
}

/// The paths of the fields for the pods of all tasks of a run.
const OF_ALL: [&str; 4] = ["spec.taskRunTemplate.podTemplate", "spec.taskRunTemplate", "spec.podTemplate", "spec"];

/// Returns the paths of the fields for the pods of certain tasks of a run.
fn of_tasks(object: &Value, is_selected: impl Fn(&str) -> bool) -> Vec<String> {
    let specs = (0..length(object, "spec.taskRunSpecs")).map(|index| format!("spec.taskRunSpecs[{index}]"));
    let templates = |spec: String| [format!("{spec}.podTemplate"), format!("{spec}.taskPodTemplate"), spec];
    specs.filter(|spec| is_selected(spec)).flat_map(templates).collect()
}
