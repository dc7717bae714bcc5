//! Pools that are refused, and what is said of them.

/// A spec, the beginning of the rule's message, the field that the operator names, and what both say to write instead.
pub type Refusal = (&'static str, &'static str, &'static str, &'static str);

/// All but declared classes.
pub const POOLS: &[Refusal] = &[
    (
        "metadata: {name: 'a123456789a123456789a123456789a123456789a123456789a123456789abcd'}",
        "metadata.name must be at most 63",
        "metadata.name",
        "at most 63 characters",
    ),
    // Taints.
    ("spec: {taints: []}", "taints: [] is the same as", "spec.taints", "os=windows:NoSchedule"),
    (
        "spec: {taints: [{key: -a, effect: NoSchedule}]}",
        "key must be a qualified name",
        "spec.taints[0].key",
        "such as os",
    ),
    ("spec: {taints: [{key: a/b/c, effect: NoSchedule}]}", "key must be a", "spec.taints[0].key", "such as os"),
    ("spec: {taints: [{key: A.com/b, effect: NoSchedule}]}", "key must be a", "spec.taints[0].key", "such as os"),
    ("spec: {taints: [{key: /b, effect: NoSchedule}]}", "key must be a", "spec.taints[0].key", "such as os"),
    ("spec: {taints: [{key: a/, effect: NoSchedule}]}", "key must be a", "spec.taints[0].key", "such as os"),
    ("spec: {taints: [{key: \"a\\n\", effect: NoSchedule}]}", "key must be a", "spec.taints[0].key", "such as os"),
    (
        "spec: {retiredTaints: [{key: a b, effect: NoSchedule}]}",
        "key must be a",
        "spec.retiredTaints[0].key",
        "such as os",
    ),
    (
        "spec: {taints: [{key: a, value: b c, effect: NoSchedule}]}",
        "value must be a label value",
        "spec.taints[0].value",
        "such as windows",
    ),
    (
        "spec: {taints: [{key: a, value: -b, effect: NoSchedule}]}",
        "value must be a",
        "spec.taints[0].value",
        "such as windows",
    ),
    (
        "spec: {taints: [{key: a, effect: NoExecute}]}",
        "effect must be NoSchedule",
        "spec.taints[0].effect",
        "NoSchedule or PreferNoSchedule",
    ),
    (
        "spec: {taints: [{key: a, effect: noschedule}]}",
        "effect must be",
        "spec.taints[0].effect",
        "NoSchedule or PreferNoSchedule",
    ),
    (
        "spec: {retiredTaints: [{key: a, effect: ''}]}",
        "effect must be",
        "spec.retiredTaints[0].effect",
        "NoSchedule or PreferNoSchedule",
    ),
    (
        "spec: {taints: [{key: a, effect: NoSchedule}, {key: karpenter.sh/disrupted, effect: NoSchedule}]}",
        "key belongs to Kubernetes or to an autoscaler",
        "spec.taints[1].key",
        "choose a key of your own",
    ),
    (
        "spec: {taints: [{key: a, value: b, effect: NoSchedule}], retiredTaints: [{key: a, value: b, effect: NoSchedule}]}",
        "a taint is both in taints and in retiredTaints",
        "spec.retiredTaints",
        "remove it from one of",
    ),
    (
        "spec: {taints: [{key: a, effect: NoSchedule}], retiredTaints: [{key: a, value: '', effect: NoSchedule}]}",
        "a taint is both in taints and in retiredTaints",
        "spec.retiredTaints",
        "remove it from one of",
    ),
    (
        "spec: {retiredTaints: [{key: os, value: windows, effect: NoSchedule}]}",
        "retiredTaints has os=windows:NoSchedule",
        "spec.retiredTaints",
        "os=windows:NoSchedule",
    ),
    // Selectors.
    (
        "spec: {nodeSelector: {kubernetes.io/os: linux}}",
        "nodeSelector: kubernetes.io/os can only be",
        "spec.nodeSelector[kubernetes.io/os]",
        "leave it out",
    ),
    (
        "spec: {nodeSelector: {winpool.dev/pool: a}}",
        "nodeSelector: labels under winpool.dev",
        "spec.nodeSelector[winpool.dev/pool]",
        "use a label of your own",
    ),
    (
        "spec: {nodeSelector: {runtimeclass.winpool.dev/a: b}}",
        "nodeSelector: labels under",
        "spec.nodeSelector[runtimeclass.winpool.dev/a]",
        "use a label of your own",
    ),
    (
        "spec: {nodeSelector: {a b: c}}",
        "nodeSelector: keys must be label names",
        "spec.nodeSelector[a b]",
        "as in a pod's nodeSelector",
    ),
    (
        "spec: {nodeSelector: {a: b c}}",
        "nodeSelector: keys must be",
        "spec.nodeSelector[a]",
        "as in a pod's nodeSelector",
    ),
    (
        "spec: {nodeSelector: {'': c}}",
        "nodeSelector: keys must be",
        "spec.nodeSelector[]",
        "as in a pod's nodeSelector",
    ),
    // Class names.
    (
        "spec: {runtimeClassNameFormat: windows-2019}",
        "runtimeClassNameFormat must contain {version}",
        "spec.runtimeClassNameFormat",
        "such as windows-{version}",
    ),
    (
        "spec: {runtimeClassNameFormat: 'windows-{version}-{build}'}",
        "runtimeClassNameFormat must",
        "spec.runtimeClassNameFormat",
        "such as windows-{version}",
    ),
    (
        "spec: {runtimeClassNameFormat: 'Windows-{version}'}",
        "runtimeClassNameFormat must",
        "spec.runtimeClassNameFormat",
        "such as windows-{version}",
    ),
    (
        "spec: {runtimeClassNameFormat: '{version}-'}",
        "runtimeClassNameFormat must",
        "spec.runtimeClassNameFormat",
        "such as windows-{version}",
    ),
    (
        "spec: {runtimeClassNameFormat: '{version}..{pool}'}",
        "runtimeClassNameFormat must",
        "spec.runtimeClassNameFormat",
        "such as windows-{version}",
    ),
    // Builds.
    (
        "spec: {buildNames: [{build: '29000', version: x}]}",
        "build must be 10.0.<number>",
        "spec.buildNames[0].build",
        "such as 10.0.20348",
    ),
    (
        "spec: {buildNames: [{build: 10.0.29000.1, version: x}]}",
        "build must be",
        "spec.buildNames[0].build",
        "such as 10.0.20348",
    ),
    (
        "spec: {buildNames: [{build: 10.0.029000, version: x}]}",
        "build must be",
        "spec.buildNames[0].build",
        "such as 10.0.20348",
    ),
    (
        "spec: {buildNames: [{build: 10.0.29000, version: X}]}",
        "version must be lower-case",
        "spec.buildNames[0].version",
        "such as preview",
    ),
    (
        "spec: {buildNames: [{build: 10.0.29000, version: a.b}]}",
        "version must be lower-case",
        "spec.buildNames[0].version",
        "such as preview",
    ),
    (
        "spec: {buildNames: [{build: 10.0.29000, version: '2019'}]}",
        "version is the name of another",
        "spec.buildNames[0].version",
        "choose another name",
    ),
    (
        "spec: {buildNames: [{build: 10.0.29000, version: build-1}]}",
        "version is the name of another",
        "spec.buildNames[0].version",
        "choose another name",
    ),
    (
        "spec: {buildNames: [{build: 10.0.1, version: a}, {build: 10.0.2, version: a}]}",
        "buildNames: each version",
        "spec.buildNames",
        "remove one of the two",
    ),
    // Defaults of pods.
    (
        "spec: {podDefaults: {runtimeClassName: Windows_2022}}",
        "runtimeClassName must be the name",
        "spec.podDefaults.runtimeClassName",
        "such as windows-2022",
    ),
];

/// Declared classes.
pub const CLASSES: &[Refusal] = &[
    (
        "spec: {runtimeClasses: [{name: a}]}",
        "write exactly one of version",
        "spec.runtimeClasses[0]",
        "exactly one of version (such as 2019) and build",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', build: 10.0.17763}]}",
        "write exactly one of",
        "spec.runtimeClasses[0]",
        "exactly one of version (such as 2019) and build",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '1809'}]}",
        "runtimeClasses: version is not known",
        "spec.runtimeClasses[0].version",
        "spec.buildNames",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: 20H2}]}",
        "runtimeClasses: version is not known",
        "spec.runtimeClasses[0].version",
        "write build instead",
    ),
    (
        "spec: {runtimeClasses: [{name: a, build: 10.0.0}]}",
        "build must be 10.0.<number>",
        "spec.runtimeClasses[0].build",
        "such as 10.0.20348",
    ),
    (
        "spec: {runtimeClasses: [{name: A, version: '2019'}]}",
        "name must be a DNS subdomain",
        "spec.runtimeClasses[0].name",
        "such as windows-2022",
    ),
    (
        "spec: {runtimeClasses: [{name: a-, version: '2019'}]}",
        "name must be a DNS subdomain",
        "spec.runtimeClasses[0].name",
        "such as windows-2022",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', handler: a.b}]}",
        "handler must be a DNS label",
        "spec.runtimeClasses[0].handler",
        "such as runhcs-wcow-process",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{operator: Maybe}]}]}",
        "tolerations: operator must be",
        "spec.runtimeClasses[0].tolerations",
        "Equal or Exists",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{key: a, effect: Never}]}]}",
        "tolerations: operator must be",
        "spec.runtimeClasses[0].tolerations",
        "or left out for all",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{value: a}]}]}",
        "tolerations: without a key operator must be Exists",
        "spec.runtimeClasses[0].tolerations",
        "without a key operator must be Exists",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{key: a, operator: Exists, value: a}]}]}",
        "tolerations: operator Exists has no value",
        "spec.runtimeClasses[0].tolerations",
        "operator Exists has no value",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 30}]}]}",
        "tolerations: operator Exists has no value, and tolerationSeconds needs effect NoExecute",
        "spec.runtimeClasses[0].tolerations",
        "tolerationSeconds needs effect NoExecute",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{key: a b}]}]}",
        "tolerations: key must be a qualified name",
        "spec.runtimeClasses[0].tolerations",
        "key must be a qualified name",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', tolerations: [{key: a, value: b c}]}]}",
        "tolerations: key must be a qualified name",
        "spec.runtimeClasses[0].tolerations",
        "value a label value",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', overhead: {podFixed: {disk: 1}}}]}",
        "overhead.podFixed: names are cpu, memory",
        "spec.runtimeClasses[0].overhead.podFixed",
        "names are cpu, memory",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: Any, hostMatch: Compatible}]}",
        "hostMatch: Compatible needs the build",
        "spec.runtimeClasses[0].hostMatch",
        "write a version such as 2022",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', architecture: x86_64}]}",
        "architecture must be a value",
        "spec.runtimeClasses[0].architecture",
        "such as amd64",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', nodeSelector: {kubernetes.io/os: windows}}]}",
        "nodeSelector may not set",
        "spec.runtimeClasses[0].nodeSelector",
        "follow",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', nodeSelector: {kubernetes.io/arch: amd64}}]}",
        "nodeSelector may not set",
        "spec.runtimeClasses[0].nodeSelector",
        "may not set",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', nodeSelector: {node.kubernetes.io/windows-build: 10.0.1}}]}",
        "nodeSelector may not set",
        "spec.runtimeClasses[0].nodeSelector",
        "may not set",
    ),
    (
        "spec: {runtimeClasses: [{name: a, version: '2019', nodeSelector: {a: 'b/c'}}]}",
        "nodeSelector: keys must be label names",
        "spec.runtimeClasses[0].nodeSelector[a]",
        "as in a pod's nodeSelector",
    ),
];
