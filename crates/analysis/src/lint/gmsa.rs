//! Rules about group managed service accounts (GMSA), and `GMSACredentialSpec` objects.
//!
//! The webhook of kubernetes-sigs/windows-gmsa is itself a Linux pod: `linux-image` finds one that selects Windows nodes.
//!
//! Sources: "Configure GMSA for Windows Pods and containers" in kubernetes/website; kubernetes/kubernetes
//! `pkg/apis/core/validation/validation.go` (`validateWindowsSecurityContextOptions`). A control-plane test compares
//! `gmsa-name-invalid` with the API server.

use serde_json::Value;
use winpool_core::api::names::is_dns_subdomain;

use crate::finding::Consequence::{Fails, Rejected};
use crate::finding::Finding;
use crate::finding::Severity::{Error, Warning};
use crate::lint::Facts;
use crate::lint::field::containers;
use crate::lint::objects::check_object;
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, Test, own, rules};
use crate::workload::get;

/// The field that names a `GMSACredentialSpec`.
pub const NAME: &str = "gmsaCredentialSpecName";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks: `securityContext: {windowsOptions: {gmsaCredentialSpecName: WebApp1}}`
    /// - Breaks: `securityContext: {windowsOptions: {gmsaCredentialSpecName: ''}}`
    /// - Keeps: `securityContext: {windowsOptions: {gmsaCredentialSpecName: webapp-1}}`
    /// - Keeps: `securityContext: {windowsOptions: {gmsaCredentialSpecName: webapp.shop}}`
    Rule {
        id: "gmsa-name-invalid",
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "securityContext.windowsOptions.gmsaCredentialSpecName",
        reason: "gmsaCredentialSpecName is not a valid object name: it may have lower-case letters, digits, '-' and \
                 '.'",
        remedy: "write the name of the GMSACredentialSpec",
        test: own(invalid_name),
        ..Rule::DEFAULT
    },
    /// - Breaks if it does not exist: `securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}`
    Rule {
        id: "gmsa-credential-spec-missing",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Any,
        field: "securityContext.windowsOptions.gmsaCredentialSpecName",
        reason: "no known GMSACredentialSpec has this name",
        remedy: "create the GMSACredentialSpec, or write the name of an existing one",
        test: own(missing_object),
        ..Rule::DEFAULT
    },
    /// - Breaks without a role: `serviceAccountName: web, securityContext: {windowsOptions: {gmsaCredentialSpecName: app}}`
    Rule {
        id: "gmsa-use-not-allowed",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Any,
        field: "securityContext.windowsOptions.gmsaCredentialSpecName",
        reason: "no known role allows the ServiceAccount of the pod to use the GMSACredentialSpec, so the GMSA webhook \
                 refuses the pod",
        remedy: "bind a role with the verb use for the GMSACredentialSpec to the ServiceAccount",
        test: own(not_allowed),
        ..Rule::DEFAULT
    },
    /// - Breaks without the webhook: `securityContext: {windowsOptions: {gmsaCredentialSpecName: app}}`
    Rule {
        id: "gmsa-webhook-missing",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Any,
        field: "securityContext.windowsOptions.gmsaCredentialSpecName",
        reason: "the cluster has no GMSA webhook, so nothing replaces the name with the credential specification that \
                 the kubelet needs",
        remedy: "install the webhook of kubernetes-sigs/windows-gmsa, on Linux nodes",
        test: own(no_webhook),
        ..Rule::DEFAULT
    },
    /// - Breaks: `securityContext: {windowsOptions: {gmsaCredentialSpec: webapp}}`
    /// - Breaks: `securityContext: {windowsOptions: {gmsaCredentialSpec: '{}'}}`
    /// - Keeps: `securityContext: {windowsOptions: {gmsaCredentialSpec: '{"DomainJoinConfig": {},
    ///   "ActiveDirectoryConfig": {}}'}}`
    Rule {
        id: "gmsa-credential-spec",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "securityContext.windowsOptions.gmsaCredentialSpec",
        reason: "gmsaCredentialSpec is not a credential specification: that is a JSON object with DomainJoinConfig and \
         ActiveDirectoryConfig",
        remedy: "remove it and name the object in gmsaCredentialSpecName: the GMSA webhook fills it in",
        test: own(inline),
        ..Rule::DEFAULT
    },
    /// - Breaks: `credspec: {CmsPlugins: [ActiveDirectory]}`
    /// - Keeps: `credspec: {DomainJoinConfig: {}, ActiveDirectoryConfig: {}}`
    Rule {
        id: "gmsa-object-malformed",
        verdict: Judgement(Error, Fails),
        scope: Scope::CredentialSpec,
        field: "credspec",
        reason: "the object is not a credential specification: credspec needs DomainJoinConfig and \
                 ActiveDirectoryConfig",
        remedy: "create the object from the JSON file that New-CredentialSpec of the PowerShell module CredentialSpec \
                 writes",
        test: Test::Object(|object, _, hits| {
            if !is_credential_spec(&object["credspec"]) {
                hits.push(Hit::at("credspec"));
            }
        }),
        ..Rule::DEFAULT
    },
]);

/// Returns the findings about a `GMSACredentialSpec`.
pub fn check_credential_spec(object: &Value, facts: &Facts) -> Vec<Finding> {
    check_object("GMSACredentialSpec", RULES, object, facts)
}

/// Returns this text of `windowsOptions` of the pod and of its containers, each with its field.
fn options<'a>(subject: &Subject<'a>, option: &str) -> impl Iterator<Item = (String, &'a str)> {
    let path = ["securityContext", "windowsOptions", option].map(str::to_owned);
    let pod = subject.workload.raw;
    let places = std::iter::once((String::new(), pod));
    let places = places.chain(containers(pod).map(|(place, container)| (format!("{place}."), container)));
    places.filter_map(move |(prefix, place)| {
        let text = get(place, &path.each_ref().map(String::as_str))?.as_str()?;
        Some((format!("{prefix}{}", path.join(".")), text))
    })
}

fn is_credential_spec(spec: &Value) -> bool {
    ["DomainJoinConfig", "ActiveDirectoryConfig"].iter().all(|part| spec[*part].is_object())
}

/// True for a name in a template that was not rendered, such as `${CREDSPEC}` and `{{ .Values.gmsa }}`. It says nothing yet.
fn is_unrendered(name: &str) -> bool {
    ["${", "{{"].iter().any(|start| name.contains(start))
}

fn invalid_name(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let invalid = options(subject, NAME).filter(|(_, name)| !is_dns_subdomain(name) && !is_unrendered(name));
    hits.extend(invalid.map(|(field, _)| Hit::at(field)));
}

fn not_allowed(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let namespace = subject.workload.namespace();
    let account = get(subject.workload.raw, &["serviceAccountName"]).and_then(Value::as_str).unwrap_or("default");
    for (field, name) in options(subject, NAME).filter(|(_, name)| is_dns_subdomain(name)) {
        if subject.facts.gmsa.may_use(namespace, account, name) == Some(false) {
            let message = format!(
                "no known role allows the ServiceAccount {namespace}/{account} to use the GMSACredentialSpec {name}, so the GMSA \
                 webhook refuses the pod"
            );
            hits.push(Hit::at(field).saying(message));
        }
    }
}

fn no_webhook(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let is_filled_in = options(subject, "gmsaCredentialSpec").next().is_some();
    if subject.facts.gmsa.has_webhook == Some(false) && !is_filled_in {
        hits.extend(options(subject, NAME).map(|(field, _)| Hit::at(field)));
    }
}

fn missing_object(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(known) = subject.facts.credential_specs.known() else { return };
    let missing = options(subject, NAME).filter(|(_, name)| is_dns_subdomain(name) && !known.contains(*name));
    hits.extend(missing.map(|(field, name)| Hit::at(field).saying(format!("there is no GMSACredentialSpec {name}"))));
}

fn inline(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let is_one = |text: &str| serde_json::from_str(text).is_ok_and(|spec: Value| is_credential_spec(&spec));
    let inline = options(subject, "gmsaCredentialSpec").filter(|(_, text)| !is_one(text));
    hits.extend(inline.map(|(field, _)| Hit::at(field)));
}
