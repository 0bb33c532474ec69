{{/* What pods and containers share: who they are, what they may do, where they run. */}}

{{/* The first lines of a pod's spec: (list $ "gateway" .Values.gateway graceSeconds). */}}
{{- define "kbqa.podSpec" -}}
{{- $ := index . 0 -}}{{- $component := index . 1 -}}{{- $values := index . 2 -}}
serviceAccountName: {{ include "kbqa.componentName" (list $ $component) }}
automountServiceAccountToken: false
# Links would be variables such as KBQA_GATEWAY_PORT, which our services would take for settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ index . 3 }}
securityContext:
  runAsNonRoot: true
  {{- if include "kbqa.fixedUser" $ }}
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with concat $.Values.global.imagePullSecrets $.Values.imagePullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with include "kbqa.priorityClass" (list $ $component $values) }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy (default dict $values.affinity) }}
{{- if $.Values.singleNode }}
{{- $affinity = mustMergeOverwrite (fromYaml (include "kbqa.oneNode" $)) $affinity }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $.Values.topologySpread.key (not $.Values.singleNode) (has $component (list "kg-server" "rollout-worker" "gateway")) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ $.Values.topologySpread.key }}
    whenUnsatisfiable: {{ $.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "kbqa.selector" (list $ $component) | nindent 8 }}
{{- end }}
{{- end }}

{{/* On the node of any other pod of the release; Kubernetes lets the first one choose. */}}
{{- define "kbqa.oneNode" -}}
podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: {{ include "kbqa.name" . }}
          app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kbqa.fixedUser" -}}
{{- $user := .Values.podUser -}}
{{- if or (eq $user "fixed") (and (eq $user "auto") (not (.Capabilities.APIVersions.Has "security.openshift.io/v1"))) }}true{{ end -}}
{{- end }}

{{- define "kbqa.priorityClass" -}}
{{- $ := index . 0 -}}{{- $component := index . 1 -}}
{{- if (index . 2).priorityClassName -}}
{{- (index . 2).priorityClassName -}}
{{- else if and $.Values.priorityClasses.create (ne $component "jobs") -}}
{{- include "kbqa.fullname" $ }}-{{ ternary "low" "high" (has $component (list "rollout-worker" "trainer" "training-node")) -}}
{{- end -}}
{{- end }}

{{/* For every container: the restricted Pod Security Standard, and a root file system that is only read. */}}
{{- define "kbqa.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Labels and annotations of a pod: (list $ "gateway" .Values.gateway). A change of what it reads rolls it. */}}
{{- define "kbqa.podMetadata" -}}
{{- $ := index . 0 -}}
labels:
  {{- include "kbqa.labels" (list $ (index . 1)) | nindent 2 }}
  {{- with merge (dict) (default dict (index . 2).podLabels) $.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/secrets: {{ list (include "kbqa.redisPassword" $) (include "kbqa.generatedServiceKey" $) | join " " | sha256sum }}
  {{- with (index . 2).podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Probes of a service's port: (list "http" startupSeconds). Ready is what can do its work, alive what answers. */}}
{{- define "kbqa.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (index . 1) 5 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ index . 0 }}}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* Between a pod's end and the day its Service knows, requests still arrive. */}}
{{- define "kbqa.leaveService" -}}
lifecycle:
  preStop:
    exec: {command: [sleep, "5"]}
{{- end }}

{{/* Grace after the drain: the pause above, and a moment to end in. */}}
{{- define "kbqa.grace" -}}
{{- add . 20 -}}
{{- end }}
