{{/* Labels of everything; daemon: which part it is of. Called with (dict "root" $ "daemon" name). */}}
{{- define "dragoman.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{ include "dragoman.selector" . }}
{{- end }}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman-{{ .daemon }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: dragoman
{{- end }}

{{- define "dragoman.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Drivers that this release installs, and what is fenced beside, sorted. */}}
{{- define "dragoman.fenced" -}}
{{- $found := .Values.fence.drivers }}
{{- if .Values.drivers.nvidia.enabled }}{{ $found = append $found "gpu.nvidia.com" }}{{ end }}
{{- if .Values.drivers.nic.enabled }}{{ $found = append $found "dra.net" }}{{ end }}
{{- $found | uniq | sortAlpha | join "," }}
{{- end }}

{{- define "dragoman.gates" -}}
{{- $pairs := list }}
{{- range $name, $on := . }}{{ $pairs = append $pairs (printf "%s=%t" $name $on) }}{{ end }}
{{- $pairs | join "," }}
{{- end }}

{{/* Service account and the roles of files/rights.yaml. (dict "root" $ "daemon" name "rights" key "if" (list conditions...)) */}}
{{- define "dragoman.rights" -}}
{{- $root := .root }}
{{- $name := printf "dragoman-%s" .daemon }}
{{- $labels := include "dragoman.labels" . }}
{{- $conditions := .if }}
{{- $cluster := list }}
{{- $places := dict }}
{{- range get ($root.Files.Get "files/rights.yaml" | fromYaml) .rights }}
{{- if or (not .if) (has .if $conditions) }}
{{- $rule := pick . "apiGroups" "resources" "verbs" "resourceNames" }}
{{- if .in }}
{{- $place := .in }}
{{- if eq $place "release" }}{{ $place = $root.Release.Namespace }}{{ end }}
{{- $_ := set $places $place (append (get $places $place | default list) $rule) }}
{{- else }}
{{- $cluster = append $cluster $rule }}
{{- end }}
{{- end }}
{{- end }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
rules: {{- toYaml $cluster | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}
{{- range $place, $rules := $places }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $place }}
  labels: {{- $labels | nindent 4 }}
rules: {{- toYaml $rules | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $place }}
  labels: {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}
{{- end }}
{{- end }}

{{/* The Lease of replicas: made here, so that no daemon needs the right to create one, and removed with the release. */}}
{{- define "dragoman.lease" -}}
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: dragoman-{{ .daemon }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "dragoman.labels" . | nindent 4 }}
{{- end }}

{{/* What all pods share: (dict "root" $ "values" of the daemon) */}}
{{- define "dragoman.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "dragoman.container" -}}
image: {{ include "dragoman.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
ports:
- {name: {{ .portName | default "health" }}, containerPort: {{ .port | default 8080 }}}
startupProbe:
  httpGet: {path: /livez, port: {{ .portName | default "health" }}}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: {{ .portName | default "health" }}}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: {{ .portName | default "health" }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources: {{- toYaml .values.resources | nindent 2 }}
{{- end }}

{{- define "dragoman.listening" -}}
- --listen=0.0.0.0:{{ .port | default 8080 }}
- --log-format=json
- --log-level={{ .root.Values.logLevel }}
{{- end }}

{{- define "dragoman.environment" -}}
{{- with .Values.apiServer }}
{{- if .host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* A Deployment of a daemon of the whole cluster: (dict "root" $ "daemon" name "values" v "args" list "replicas" n "led" bool) */}}
{{- define "dragoman.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: dragoman-{{ .daemon }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "dragoman.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  {{- if not .led }}
  strategy: {type: Recreate}
  {{- end }}
  selector:
    matchLabels: {{- include "dragoman.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "dragoman.labels" . | nindent 8 }}
    spec:
      serviceAccountName: dragoman-{{ .daemon }}
      terminationGracePeriodSeconds: 30
      {{- include "dragoman.placement" . | nindent 6 }}
      affinity:
      {{- if .values.affinity }}
        {{- toYaml .values.affinity | nindent 8 }}
      {{- else }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {{- include "dragoman.selector" . | nindent 18 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: {{ .daemon }}
        args: {{- toYaml .args | nindent 8 }}
        {{- include "dragoman.listening" . | nindent 8 }}
        {{- with .values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- include "dragoman.environment" .root | nindent 8 }}
        {{- include "dragoman.container" . | nindent 8 }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
{{- end }}
