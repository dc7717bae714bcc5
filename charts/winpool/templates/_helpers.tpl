{{/* Name of all objects. A release named winpool gives them that name. */}}
{{- define "winpool.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end -}}
{{- $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "winpool.labels" -}}
app.kubernetes.io/name: winpool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of the operator's pods by which others find them. */}}
{{- define "winpool.selector" -}}
app.kubernetes.io/name: winpool
app.kubernetes.io/component: operator
{{- end }}

{{- define "winpool.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* What the pods of the operator and of the cleanup have in common: restricted Pod Security, on Linux. */}}
{{- define "winpool.pod" -}}
serviceAccountName: {{ include "winpool.name" . }}
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
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* And their containers. */}}
{{- define "winpool.container" -}}
image: {{ include "winpool.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
- name: WINPOOL_INSTALLATION
  value: {{ include "winpool.name" . }}
{{- if .Values.karpenter.enabled }}
- name: WINPOOL_KARPENTER
  value: "true"
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Not empty where the API server has policies that change objects. */}}
{{- define "winpool.mutates" -}}
{{ if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}true{{ end }}
{{- end }}

{{/* Not empty where the Prometheus operator is installed. */}}
{{- define "winpool.monitors" -}}
{{ if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}
{{- end }}
