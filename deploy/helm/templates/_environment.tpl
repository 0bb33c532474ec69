{{/* Variables of the services. Only names that their settings know: tests/deploy checks it. */}}

{{/* (list $ "KG_SERVER" .Values.kgServer) */}}
{{- define "kbqa.commonEnvironment" -}}
{{- $ := index . 0 -}}{{- $prefix := printf "KBQA_%s" (index . 1) -}}{{- $values := index . 2 -}}
- {name: HOME, value: /tmp}
# A user that the platform assigns has no entry in the image's list of users.
- {name: USER, value: kbqa}
- {name: KBQA_HOME, value: {{ include "kbqa.home" $ }}}
- {name: KBQA_LOG_LEVEL, value: {{ $.Values.logLevel }}}
- {name: KBQA_LOG_FORMAT, value: {{ $.Values.logFormat }}}
- {name: {{ $prefix }}_HOST, value: 0.0.0.0}
- {name: {{ $prefix }}_DRAIN_S, value: {{ $values.drainSeconds | quote }}}
{{- range $name, $value := $values.settings }}
- {name: {{ $prefix }}_{{ $name }}, value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}}
{{- end }}
{{- with $.Values.tracing.url }}
- {name: KBQA_TRACES_URL, value: {{ . | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ $.Values.tracing.sampled | quote }}}
{{- end }}
{{- include "kbqa.outsideEnvironment" $ }}
{{- end }}

{{/* How the processes of a training find each other. */}}
{{- define "kbqa.trainingEnvironment" -}}
- {name: KBQA_TRAINING_PROCESSES, value: {{ include "kbqa.trainingProcesses" . | quote }}}
{{- if gt (int .Values.trainer.gpus) 0 }}
# A pod that gets no GPU although it asks for some fails its run instead of training on the CPU.
- {name: KBQA_TRAINER_DEVICE, value: cuda}
{{- end }}
{{- if include "kbqa.severalNodes" . }}
- {name: KBQA_TRAINING_NODES, value: {{ .Values.trainer.nodes | quote }}}
- {name: KBQA_TRAINING_RENDEZVOUS, value: "{{ include "kbqa.componentName" (list . "trainer") }}-rendezvous:29500"}
{{- end }}
{{- end }}

{{/* What a user adds to a service's container; it comes last, so that it wins. */}}
{{- define "kbqa.extraEnvironment" -}}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* How a process reaches what is outside of the cluster, and whom it trusts there. */}}
{{- define "kbqa.outsideEnvironment" -}}
{{- $proxy := .Values.proxy -}}
{{- if or $proxy.http $proxy.https }}
{{- $own := list "localhost" "127.0.0.1" ".svc" ".cluster.local" -}}
{{- range $component := list "kg-server" "trainer" "gateway" "redis" "redis-gateway" "redis-cache" }}
{{- $own = append $own (include "kbqa.componentName" (list $ $component)) -}}
{{- end }}
{{- range $name, $value := dict "HTTP_PROXY" $proxy.http "HTTPS_PROXY" $proxy.https "NO_PROXY" (concat $own $proxy.exceptions | join ",") }}
{{- if $value }}
- {name: {{ $name }}, value: {{ $value | quote }}}
- {name: {{ lower $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.certificates.configMap }}
{{- range $name := list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "AWS_CA_BUNDLE" }}
- {name: {{ $name }}, value: /etc/kbqa/certificates/{{ $.Values.certificates.key }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "kbqa.certificatesMount" -}}
{{- if .Values.certificates.configMap }}
- {name: certificates, mountPath: /etc/kbqa/certificates, readOnly: true}
{{- end }}
{{- end }}

{{- define "kbqa.certificatesVolume" -}}
{{- with .Values.certificates.configMap }}
- name: certificates
  configMap: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "kbqa.home" -}}
/var/lib/kbqa
{{- end }}

{{- define "kbqa.kgServerUrl" -}}
{{- if .Values.kgServer.enabled -}}
http://{{ include "kbqa.componentName" (list . "kg-server") }}:8001
{{- else -}}
{{- .Values.kgServer.externalUrl -}}
{{- end -}}
{{- end }}

{{- define "kbqa.graphEnvironment" -}}
- {name: KBQA_KG_SERVER_URL, value: {{ include "kbqa.kgServerUrl" . | quote }}}
{{- if .Values.kgServer.auth.enabled }}
- name: KBQA_KG_SERVER_API_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.kgServer.auth.existingSecret }}, key: {{ .Values.kgServer.auth.clientKey }}}}
{{- else if .Values.kgServer.enabled }}
- name: KBQA_KG_SERVER_API_KEY
  {{- include "kbqa.serviceKey" . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The key by which the services of a release know each other. */}}
{{- define "kbqa.serviceKey" -}}
valueFrom: {secretKeyRef: {name: {{ include "kbqa.componentName" (list . "services") }}, key: api-key}}
{{- end }}

{{- define "kbqa.redisSecret" -}}
{{- .Values.redis.existingSecret | default (include "kbqa.componentName" (list . "redis")) -}}
{{- end }}

{{- define "kbqa.redisUsed" -}}
{{- if or .Values.redis.enabled .Values.externalRedis.existingSecret }}true{{ end -}}
{{- end }}

{{- define "kbqa.cacheUsed" -}}
{{- if and .Values.redisCache.enabled .Values.kgServer.enabled }}true{{ end -}}
{{- end }}

{{- define "kbqa.gatewayRedisUsed" -}}
{{- if and .Values.redisGateway.enabled .Values.gateway.enabled }}true{{ end -}}
{{- end }}

{{/* (list $ "redis") → the URL of a Redis of the release. */}}
{{- define "kbqa.ownRedis" -}}
{{- $ := index . 0 }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "kbqa.redisSecret" $ }}, key: {{ $.Values.redis.secretKey }}}}
- {name: KBQA_REDIS_URL, value: "redis://:$(REDIS_PASSWORD)@{{ include "kbqa.componentName" . }}:6379/0"}
{{- end }}

{{/* Where kg_server keeps answers beside its memory: never with the queues, whose Redis they would fill. */}}
{{- define "kbqa.cacheEnvironment" -}}
{{- if include "kbqa.cacheUsed" . }}
{{- include "kbqa.ownRedis" (list . "redis-cache") }}
{{- end }}
{{- end }}

{{- define "kbqa.redisEnvironment" -}}
{{- if .Values.redis.enabled }}
{{- include "kbqa.ownRedis" (list . "redis") }}
{{- else if .Values.externalRedis.existingSecret }}
- name: KBQA_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.externalRedis.existingSecret }}, key: {{ .Values.externalRedis.secretKey }}}}
{{- end }}
{{- end }}

{{/* Where gateways keep counts and answers. */}}
{{- define "kbqa.gatewayRedisEnvironment" -}}
{{- if include "kbqa.gatewayRedisUsed" . }}
{{- include "kbqa.ownRedis" (list . "redis-gateway") }}
{{- else }}
{{- include "kbqa.redisEnvironment" . }}
{{- end }}
{{- end }}

{{/* What begins the queues' keys: releases may share an external Redis, but no queue. */}}
{{- define "kbqa.queuePrefix" -}}
{{- if not .Values.redis.enabled -}}
{{- .Values.externalRedis.queuePrefix | default (printf "%s.%s:" .Release.Namespace .Release.Name) -}}
{{- end -}}
{{- end }}

{{/* Where the queues are, for trainer and workers. */}}
{{- define "kbqa.queueEnvironment" -}}
{{- include "kbqa.redisEnvironment" . }}
{{- with include "kbqa.queuePrefix" . }}
- {name: KBQA_QUEUE_PREFIX, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Where policies are, for who reads or writes them. */}}
{{- define "kbqa.policyEnvironment" -}}
{{- if eq .Values.policyStore.type "s3" }}
- {name: KBQA_POLICY_STORE, value: {{ .Values.policyStore.s3.url | quote }}}
{{- with .Values.policyStore.s3.endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .Values.policyStore.s3.region }}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .Values.policyStore.s3.existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_ACCESS_KEY_ID}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_SECRET_ACCESS_KEY}}
{{- end }}
{{- else }}
- {name: KBQA_POLICY_STORE, value: /policies/store}
{{- end }}
{{- end }}

{{- define "kbqa.policyMount" -}}
{{- if eq .Values.policyStore.type "volume" }}
- {name: policies, mountPath: /policies}
{{- end }}
{{- end }}

{{- define "kbqa.policyVolume" -}}
{{- if eq .Values.policyStore.type "volume" }}
- name: policies
  persistentVolumeClaim: {claimName: {{ include "kbqa.claimName" (list . "policies" .Values.policyStore.persistence) }}}
{{- end }}
{{- end }}

{{/* Space on the node: what is pulled from a bucket, and nothing else of size. */}}
{{- define "kbqa.homeVolume" -}}
- name: home
  emptyDir: {sizeLimit: {{ ternary .Values.policyStore.s3.cacheSize "4Gi" (eq .Values.policyStore.type "s3") }}}
{{- end }}

{{/* Runs and checkpoints. */}}
{{- define "kbqa.trainerHome" -}}
- name: home
  {{- if .Values.trainer.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "kbqa.claimName" (list . "trainer" .Values.trainer.persistence) }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{- define "kbqa.tmpVolume" -}}
- name: tmp
  emptyDir: {sizeLimit: 8Gi}
{{- end }}

{{- define "kbqa.judgeEnvironment" -}}
{{- with .Values.judge.existingSecret }}
- name: OPENAI_API_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.judge.secretKey }}}}
{{- end }}
{{- end }}

{{- define "kbqa.redisPassword" -}}
{{- if and (or .Values.redis.enabled (include "kbqa.cacheUsed" .)) (not .Values.redis.existingSecret) -}}
{{- include "kbqa.generated" (list . (include "kbqa.redisSecret" .) .Values.redis.secretKey 32) -}}
{{- end -}}
{{- end }}

{{- define "kbqa.generatedServiceKey" -}}
{{- if or .Values.kgServer.enabled .Values.trainer.enabled -}}
{{- include "kbqa.generated" (list . (include "kbqa.componentName" (list . "services")) "api-key" 48) -}}
{{- end -}}
{{- end }}

{{/* A secret text, made once, and found again by every upgrade: (list $ Secret key length). */}}
{{- define "kbqa.generated" -}}
{{- $ := index . 0 -}}{{- $name := index . 1 -}}
{{- $found := lookup "v1" "Secret" $.Release.Namespace $name -}}
{{- if $found -}}
{{- index $found.data (index . 2) | b64dec -}}
{{- else -}}
{{- $made := printf "kbqa-%s" $name -}}
{{- if not (hasKey $.Release $made) -}}
{{- $_ := set $.Release $made (randAlphaNum (index . 3)) -}}
{{- end -}}
{{- get $.Release $made -}}
{{- end -}}
{{- end }}
