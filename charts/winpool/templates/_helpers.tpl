{{/* Name of all objects. A release named winpool gives them that name. */}}
{{- define "winpool.name" -}}
{{- $chart := .Values.nameOverride | default .Chart.Name -}}
{{- $name := printf "%s-%s" .Release.Name $chart -}}
{{- if contains $chart .Release.Name }}{{ $name = .Release.Name }}{{ end -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "winpool.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "winpool.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "winpool.labels" -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version"
  "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- toYaml . }}
{{ end -}}
app.kubernetes.io/name: winpool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels of the operator's pods that selectors use. */}}
{{- define "winpool.selector" -}}
app.kubernetes.io/name: winpool
app.kubernetes.io/component: operator
{{- end }}

{{/* The labels by which a ServiceMonitor finds the Service. */}}
{{- define "winpool.service" -}}
app.kubernetes.io/name: winpool
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "winpool.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The common part of the operator's and the cleanup's pods. */}}
{{- define "winpool.pod" -}}
serviceAccountName: {{ include "winpool.account" . }}
automountServiceAccountToken: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- merge (dict "kubernetes.io/os" "linux") .Values.nodeSelector | toYaml | nindent 2 }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{/* The common part of their containers. */}}
{{- define "winpool.container" -}}
image: {{ include "winpool.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
- name: WINPOOL_INSTALLATION
  value: {{ include "winpool.name" . }}
- name: WINPOOL_POD
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}

{{/* Not empty if the API server has MutatingAdmissionPolicy. */}}
{{- define "winpool.mutates" -}}
{{ if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}true{{ end }}
{{- end }}

{{/* Not empty if the Prometheus operator is installed. */}}
{{- define "winpool.monitors" -}}
{{ if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}
{{- end }}
