{{/* Names and labels. A component is one of kg-server, rollout-worker, trainer, training-node, gateway, redis, redis-gateway, redis-cache, jobs. */}}

{{- define "kbqa.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "kbqa.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "kbqa.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* (list $ "gateway") → kbqa-gateway */}}
{{- define "kbqa.componentName" -}}
{{- printf "%s-%s" (include "kbqa.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{/* What a selector is made of; it never changes. */}}
{{- define "kbqa.selector" -}}
app.kubernetes.io/name: {{ include "kbqa.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "kbqa.labels" -}}
{{- $ := index . 0 -}}
{{ include "kbqa.selector" . }}
app.kubernetes.io/part-of: kbqa
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- with $.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* (list $ "gateway" "suffix") → metadata of an object of that component */}}
{{- define "kbqa.metadata" -}}
{{- $ := index . 0 -}}
name: {{ include "kbqa.componentName" . }}{{ if gt (len .) 2 }}-{{ index . 2 }}{{ end }}
namespace: {{ $.Release.Namespace }}
labels:
  {{- include "kbqa.labels" . | nindent 2 }}
{{- end }}

{{/*
(list $ .Values.vllm.image) → an image; of one of our services that has torch, (list $ .Values.trainer.image "cuda"),
whose tag then ends in that build of torch unless it is given whole.
*/}}
{{- define "kbqa.image" -}}
{{- $ := index . 0 -}}{{- $image := index . 1 -}}
{{- $registry := hasKey $image "registry" | ternary $image.registry $.Values.image.registry | default $.Values.global.imageRegistry -}}
{{- $name := list $registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else if $image.tag -}}
{{- printf "%s:%s" $name $image.tag -}}
{{- else -}}
{{- printf "%s:%s" $name (concat (list ($.Values.image.tag | default $.Chart.AppVersion)) (slice . 2) | join "-") -}}
{{- end -}}
{{- end }}

{{/* Which build of torch the trainer has; what computes on GPUs elsewhere is vLLM, in an image of its own. */}}
{{- define "kbqa.trainerImage" -}}
{{- include "kbqa.image" (list . .Values.trainer.image (ternary "cuda" "cpu" (gt (int .Values.trainer.gpus) 0))) -}}
{{- end }}

{{/* (list resources number resource) → resources with so many GPUs beside them */}}
{{- define "kbqa.resources" -}}
{{- $resources := deepCopy (index . 0) -}}{{- $gpus := int (index . 1) -}}{{- $name := index . 2 -}}
{{- if gt $gpus 0 -}}
{{- $limits := merge (dict $name $gpus) (default dict $resources.limits) -}}
{{- $resources = set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* A quantity in MiB, rounded up: "50Gi" → 51200; a number is in bytes */}}
{{- define "kbqa.mebibytes" -}}
{{- $quantity := ternary (int64 . | toString) . (kindIs "float64" .) | toString -}}
{{- $unit := regexFind "[A-Za-z]*$" $quantity -}}
{{- $bytes := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- divf (mulf (trimSuffix $unit $quantity | float64) (get $bytes $unit | float64)) 1048576 | ceil | int64 -}}
{{- end }}

{{/*
resources, as YAML, with ephemeral storage beside them: (list $ resources volumes…), each of the last being YAML. A container that
declares it answers for all volumes of its pod on the node's disk: it requests room for those that fill (models, and what is pulled from
a bucket), and is limited to all of them. 1Gi and 2Gi are for logs and the rest. What `resources` says comes first; a request above its
limit, which Kubernetes would refuse, is refused here.
*/}}
{{- define "kbqa.withStorage" -}}
{{- $ := index . 0 -}}{{- $resources := index . 1 | fromYaml -}}
{{- $fills := ternary (list "models" "home") (list "models") (eq $.Values.policyStore.type "s3") -}}
{{- $requested := 1024 -}}{{- $limit := 2048 -}}{{- $open := false -}}
{{- range slice . 2 }}{{ range fromYamlArray . }}{{ if and (hasKey . "emptyDir") (not (get .emptyDir "medium")) -}}
{{- if .emptyDir.sizeLimit -}}
{{- $size := include "kbqa.mebibytes" .emptyDir.sizeLimit -}}
{{- $limit = add $limit $size -}}
{{- if has .name $fills }}{{ $requested = add $requested $size }}{{ end -}}
{{- else }}{{ $open = true }}{{ end -}}
{{- end }}{{ end }}{{ end -}}
{{- $storage := dict "requests" (dict "ephemeral-storage" (printf "%dMi" (int64 $requested))) -}}
{{- if not $open }}{{ $_ := set $storage "limits" (dict "ephemeral-storage" (printf "%dMi" (int64 $limit))) }}{{ end -}}
{{- $resources = merge $resources $storage -}}
{{- $request := index $resources.requests "ephemeral-storage" -}}
{{- with $resources.limits }}{{ with index . "ephemeral-storage" -}}
{{- if gt (include "kbqa.mebibytes" $request | int64) (include "kbqa.mebibytes" . | int64) -}}
{{- fail (printf "resources: the pod would request %v of ephemeral storage, and its limit is %v: set both, or lower what its caches may fill (model.emptyDirSize, policyStore.s3.cacheSize)" $request .) -}}
{{- end -}}
{{- end }}{{ end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* The name of a claim: (list $ "trainer" .Values.trainer.persistence) */}}
{{- define "kbqa.claimName" -}}
{{- (index . 2).existingClaim | default (include "kbqa.componentName" (list (index . 0) (index . 1))) -}}
{{- end }}

{{- define "kbqa.claim" -}}
{{- $values := index . 2 }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "kbqa.metadata" (list (index . 0) (index . 1)) | nindent 2 }}
  {{- if $values.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes: {{ toJson $values.accessModes }}
  {{- with $values.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ $values.size }}
{{- end }}

{{/* The shared shape of a CPU autoscaler: (list $ "gateway" .Values.gateway.autoscaling) */}}
{{- define "kbqa.cpuAutoscaler" -}}
{{- $values := index . 2 }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "kbqa.metadata" (list (index . 0) (index . 1)) | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "kbqa.componentName" . }}
  minReplicas: {{ $values.minReplicas }}
  maxReplicas: {{ $values.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $values.cpuPercent }}
{{- end }}

{{/* (list $ "gateway" maxUnavailable) */}}
{{- define "kbqa.disruptionBudget" -}}
{{- if (index . 0).Values.disruptionBudgets -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "kbqa.metadata" (list (index . 0) (index . 1)) | nindent 2 }}
spec:
  maxUnavailable: {{ index . 2 }}
  selector:
    matchLabels:
      {{- include "kbqa.selector" . | nindent 6 }}
{{- end -}}
{{- end }}
