//! What the API server checks of a WindowsPool beyond the types of its fields.

use winpool_core::windows::product::{PRODUCTS, Product};

/// The smallest and the largest size of a text, a list or a map.
pub(super) const SIZES: &[(&str, Option<i64>, i64)] = &[
    ("spec.nodeSelector", None, 32),
    ("spec.nodeSelector{}", None, 63),
    ("spec.taints", None, 16),
    ("spec.retiredTaints", None, 16),
    ("spec.runtimeClassNameFormat", Some(9), 63),
    ("spec.runtimeClasses", None, 32),
    ("spec.buildNames", None, 32),
    ("spec.podDefaults.runtimeClassName", Some(1), 63),
    ("spec.buildNames[].build", None, 12),
    ("spec.buildNames[].version", Some(1), 32),
    ("spec.taints[].key", Some(1), 317),
    ("spec.taints[].value", None, 63),
    ("spec.taints[].effect", None, 32),
    ("spec.retiredTaints[].key", Some(1), 317),
    ("spec.retiredTaints[].value", None, 63),
    ("spec.retiredTaints[].effect", None, 32),
    ("spec.runtimeClasses[].name", Some(1), 63),
    ("spec.runtimeClasses[].build", None, 12),
    ("spec.runtimeClasses[].handler", Some(1), 63),
    ("spec.runtimeClasses[].architecture", Some(1), 16),
    ("spec.runtimeClasses[].overhead.podFixed", None, 8),
    ("spec.runtimeClasses[].nodeSelector", None, 32),
    ("spec.runtimeClasses[].nodeSelector{}", None, 63),
    ("spec.runtimeClasses[].tolerations", None, 16),
    // Kubernetes' own type has no limits, and without them the API server refuses rules about it as too costly.
    ("spec.runtimeClasses[].tolerations[].key", None, 317),
    ("spec.runtimeClasses[].tolerations[].value", None, 63),
    ("spec.runtimeClasses[].tolerations[].effect", None, 32),
    ("spec.runtimeClasses[].tolerations[].operator", None, 32),
    ("status.managedTaints", None, 32),
    ("status.approvedTaints", None, 32),
    ("status.taintTrials", None, 32),
    ("status.builds", None, 32),
    ("status.builds[].vendors", None, 5),
    ("status.runtimeClasses", None, 64),
    ("status.admissionPolicies", None, 8),
    ("status.problems", None, 10),
];

/// The keys of the items of a list; without keys a list is a set.
pub(super) const KEYS: &[(&str, &[&str])] = &[
    ("spec.taints", &["key", "effect"]),
    ("spec.retiredTaints", &["key", "value", "effect"]),
    ("spec.runtimeClasses", &["name"]),
    ("spec.buildNames", &["build"]),
    ("status.managedTaints", &[]),
    ("status.approvedTaints", &["taint"]),
    ("status.taintTrials", &["taint"]),
    ("status.builds", &["build"]),
    ("status.runtimeClasses", &["name"]),
    ("status.admissionPolicies", &["name"]),
    ("status.conditions", &["type"]),
];

/// Patterns, by the words that stand for them in [`RULES`].
const PATTERNS: [(&str, &str); 5] = [
    (
        "$QUALIFIED_NAME",
        "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    ),
    ("$SUBDOMAIN", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
    ("$LABEL_VALUE", "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"),
    ("$DNS_LABEL", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    ("$BUILD", "^10[.]0[.][1-9][0-9]{0,5}$"),
];

/// A rule in CEL about the value at this path, and what the API server says of a value that breaks it. A path that ends in
/// `taints[]` means both lists.
pub(super) struct Rule {
    pub(super) path: &'static str,
    rule: &'static str,
    message: &'static str,
}

impl Rule {
    pub(super) fn rule(&self) -> String {
        let rule = PATTERNS.iter().fold(self.rule.to_owned(), |rule, (word, pattern)| rule.replace(word, pattern));
        with_releases(&rule)
    }

    pub(super) fn message(&self) -> String {
        with_releases(self.message)
    }
}

/// Lists the releases of Windows.
fn with_releases(text: &str) -> String {
    let list =
        |written: &dyn Fn(&Product) -> Vec<String>| PRODUCTS.iter().flat_map(written).collect::<Vec<_>>().join(", ");
    let quoted = |text: String| format!("'{text}'");
    // CEL lists have items of one type; YAML takes 2022 for a number.
    let number =
        |product: &Product| Some(product.version.to_owned()).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    text.replace("$SPELLINGS", &list(&|product| product.spellings().map(quoted).collect()))
        .replace("$NUMBERS", &list(&|product| number(product).into_iter().collect()))
        .replace("$RELEASES", &list(&|product| vec![product.version.to_owned()]))
        .replace("$PAIRS", &list(&|product| vec![format!("['{}', '{}']", product.version, product.build)]))
}

const fn rule(path: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule { path, rule, message }
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "",
        "size(self.metadata.name) <= 63",
        "metadata.name must be at most 63 characters, because nodes carry it as a label value",
    ),
    rule(
        "spec",
        "!has(self.taints) || size(self.taints) > 0",
        "taints: [] is the same as no taints field; leave the field out for os=windows:NoSchedule, list the taints, \
         or write taintPolicy: Never for none",
    ),
    rule(
        "spec",
        "!has(self.retiredTaints) || !has(self.taints) || !self.taints.exists(t, self.retiredTaints.exists(r, r.key \
         == t.key && r.effect == t.effect && (has(r.value) ? r.value : '') == (has(t.value) ? t.value : '')))",
        "a taint is both in taints and in retiredTaints; remove it from one of them",
    ),
    rule(
        "spec",
        "!has(self.retiredTaints) || has(self.taints) || !self.retiredTaints.exists(r, r.key == 'os' && r.effect == \
         'NoSchedule' && has(r.value) && r.value == 'windows')",
        "retiredTaints has os=windows:NoSchedule, which is the default of taints; list other taints in taints to \
         retire it",
    ),
    rule(
        "spec",
        "!has(self.nodeSelector) || self.nodeSelector.all(k, k != 'kubernetes.io/os' || self.nodeSelector[k] == \
         'windows')",
        "nodeSelector: kubernetes.io/os can only be windows; leave it out, it is always set",
    ),
    rule(
        "spec",
        "!has(self.nodeSelector) || self.nodeSelector.all(k, !k.startsWith('winpool.dev/') && \
         !k.startsWith('runtimeclass.winpool.dev/'))",
        "nodeSelector: labels under winpool.dev are written by winpool and cannot select its nodes; use a label of \
         your own",
    ),
    rule(
        "spec",
        "!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && k.indexOf('/') <= 253 && \
         k.matches('$QUALIFIED_NAME') && self.nodeSelector[k].matches('$LABEL_VALUE'))",
        "nodeSelector: keys must be label names and values label values, as in a pod's nodeSelector",
    ),
    rule(
        "spec",
        "!has(self.runtimeClasses) || self.runtimeClasses.all(c, !has(c.version) || c.version in ['Any', $SPELLINGS] \
         || c.version in [$NUMBERS] || (has(self.buildNames) && self.buildNames.exists(b, b.version == c.version)))",
        "runtimeClasses: version is not known; write Any, one of $RELEASES, name it in spec.buildNames, or write \
         build instead",
    ),
    rule(
        "spec",
        "!has(self.buildNames) || self.buildNames.all(b, self.buildNames.exists_one(c, c.version == b.version))",
        "buildNames: each version may be used once; remove one of the two",
    ),
    rule(
        "spec",
        "!has(self.runtimeClassNameFormat) || (self.runtimeClassNameFormat.contains('{version}') && \
         self.runtimeClassNameFormat.replace('{version}', 'v').replace('{pool}', 'p').matches('$SUBDOMAIN'))",
        "runtimeClassNameFormat must contain {version}, may contain {pool}, and otherwise has lower-case letters, \
         digits, '-' and '.', such as windows-{version}",
    ),
    rule(
        "spec.podDefaults",
        "!has(self.runtimeClassName) || self.runtimeClassName.matches('$SUBDOMAIN')",
        "runtimeClassName must be the name of one of the pool's RuntimeClasses, such as windows-2022",
    ),
    rule(
        "spec.buildNames[]",
        "self.build.matches('$BUILD')",
        "build must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348",
    ),
    rule(
        "spec.buildNames[]",
        "self.version.matches('$DNS_LABEL')",
        "version must be lower-case letters, digits and hyphens, because it becomes part of a RuntimeClass name, \
         such as preview",
    ),
    // A name that a newer release of winpool gives the same build was right before, and stays so.
    rule(
        "spec.buildNames[]",
        "[$PAIRS].all(r, r[0] != self.version || r[1] == self.build) && !self.version.startsWith('build-')",
        "version is the name of another Windows build already; choose another name",
    ),
    rule(
        "spec.runtimeClasses[]",
        "has(self.version) != has(self.build)",
        "write exactly one of version (such as 2019) and build (such as 10.0.17763)",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.build) || self.build.matches('$BUILD')",
        "build must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348",
    ),
    rule(
        "spec.runtimeClasses[]",
        "self.name.matches('$SUBDOMAIN')",
        "name must be a DNS subdomain of at most 63 characters, such as windows-2022",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.handler) || self.handler.matches('$DNS_LABEL')",
        "handler must be a DNS label, such as runhcs-wcow-process",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.nodeSelector) || self.nodeSelector.all(k, !(k in ['kubernetes.io/os', 'kubernetes.io/arch', \
         'node.kubernetes.io/windows-build']))",
        "nodeSelector may not set kubernetes.io/os, kubernetes.io/arch or node.kubernetes.io/windows-build; they \
         follow from version or build, and architecture",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && k.indexOf('/') <= 253 && \
         k.matches('$QUALIFIED_NAME') && self.nodeSelector[k].matches('$LABEL_VALUE'))",
        "nodeSelector: keys must be label names and values label values, as in a pod's nodeSelector",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.tolerations) || self.tolerations.all(t, (has(t.operator) ? t.operator : 'Equal') in ['Equal', \
         'Exists'] && (has(t.effect) ? t.effect : '') in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        "tolerations: operator must be Equal or Exists, and effect NoSchedule, PreferNoSchedule or NoExecute, or \
         left out for all",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.tolerations) || self.tolerations.all(t, (has(t.key) && t.key != '') || (has(t.operator) && \
         t.operator == 'Exists'))",
        "tolerations: without a key operator must be Exists, which tolerates every taint",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.tolerations) || self.tolerations.all(t, !(has(t.operator) && t.operator == 'Exists' && \
         has(t.value) && t.value != '') && (!has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute')))",
        "tolerations: operator Exists has no value, and tolerationSeconds needs effect NoExecute",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.tolerations) || self.tolerations.all(t, (!has(t.key) || t.key == '' || (t.key.indexOf('/') <= 253 \
         && t.key.matches('$QUALIFIED_NAME'))) && (!has(t.value) || t.value.matches('$LABEL_VALUE')))",
        "tolerations: key must be a qualified name such as os or node.kubernetes.io/os, and value a label value such \
         as windows",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.overhead) || self.overhead.podFixed.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || \
         (k.indexOf('/') > 0 && size(k) <= 317 && k.indexOf('/') <= 253 && k.matches('$QUALIFIED_NAME')))",
        "overhead.podFixed: names are cpu, memory, ephemeral-storage, or that of an extended resource such as \
         example.com/gpu",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.version) || self.version != 'Any' || !has(self.hostMatch) || self.hostMatch == 'Exact'",
        "hostMatch: Compatible needs the build of the images; write a version such as 2022 instead of Any",
    ),
    rule(
        "spec.runtimeClasses[]",
        "!has(self.architecture) || self.architecture.matches('^[a-z0-9]+$')",
        "architecture must be a value of the label kubernetes.io/arch, such as amd64",
    ),
    rule(
        "spec.taints[]",
        "self.key.indexOf('/') <= 253 && self.key.matches('$QUALIFIED_NAME')",
        "key must be a qualified name such as os or node.kubernetes.io/os",
    ),
    rule(
        "spec.taints[]",
        "!has(self.value) || self.value.matches('$LABEL_VALUE')",
        "value must be a label value: at most 63 letters, digits, '-', '_' or '.', such as windows",
    ),
    rule(
        "spec.taints[]",
        "self.effect in ['NoSchedule', 'PreferNoSchedule']",
        "effect must be NoSchedule or PreferNoSchedule; NoExecute is not offered because it would evict running pods",
    ),
    rule(
        "spec.taints[]",
        "!(self.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable', \
         'node.kubernetes.io/unschedulable', 'node.kubernetes.io/memory-pressure', \
         'node.kubernetes.io/disk-pressure', 'node.kubernetes.io/pid-pressure', \
         'node.kubernetes.io/network-unavailable', 'node.kubernetes.io/out-of-service', \
         'ToBeDeletedByClusterAutoscaler', 'DeletionCandidateOfClusterAutoscaler']) && \
         !self.key.startsWith('node.cloudprovider.kubernetes.io/') && !self.key.startsWith('karpenter.sh/') && \
         !self.key.startsWith('readiness.k8s.io/')",
        "key belongs to Kubernetes or to an autoscaler; choose a key of your own such as os",
    ),
];
