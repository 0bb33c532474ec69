{{/* The pretrained model, and vLLM beside a worker or a gateway. */}}

{{/* Brings the model into the cache that the pod's containers share; asks the hub only for what is missing: (list $ image). */}}
{{- define "kbqa.fetchModel" -}}
{{- $ := index . 0 -}}
- name: model
  image: {{ index . 1 }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: [hf, download, {{ include "kbqa.baseModel" $ | quote }}{{ with include "kbqa.baseRevision" $ }}, --revision, {{ . | quote }}{{ end }}]
  env:
    - {name: HOME, value: /tmp}
    - {name: HF_HOME, value: /models}
    {{- include "kbqa.outsideEnvironment" $ | nindent 4 }}
    {{- if $.Values.model.offline }}
    - {name: HF_HUB_OFFLINE, value: "1"}
    {{- end }}
    {{- with $.Values.model.endpoint }}
    - {name: HF_ENDPOINT, value: {{ . | quote }}}
    {{- end }}
    {{- with $.Values.model.existingSecret }}
    - name: HF_TOKEN
      valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.model.secretKey }}}}
    {{- end }}
  {{- include "kbqa.containerSecurity" $ | nindent 2 }}
  resources:
    requests: {cpu: 500m, memory: 512Mi}
    limits: {memory: 4Gi}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: tmp, mountPath: /tmp}
    {{- include "kbqa.certificatesMount" $ | nindent 4 }}
{{- end }}

{{- define "kbqa.modelVolume" -}}
- name: models
  {{- if .Values.model.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "kbqa.claimName" (list . "models" .Values.model.persistence) }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.model.emptyDirSize }}}
  {{- end }}
{{- end }}

{{- define "kbqa.modelEnvironment" -}}
- {name: HF_HOME, value: /models}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- with include "kbqa.baseRevision" . }}
- {name: KBQA_BASE_REVISION, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/*
vLLM as a native sidecar: (list $ .Values.gateway). It starts before its service and ends after it. It listens
on 127.0.0.1 alone, since whoever reaches it gives it orders; hence a probe by command.
*/}}
{{- define "kbqa.vllm" -}}
{{- $ := index . 0 -}}{{- $values := index . 1 -}}{{- $vllm := $.Values.vllm -}}
- name: vllm
  image: {{ include "kbqa.image" (list $ $vllm.image) }}
  imagePullPolicy: {{ $vllm.image.pullPolicy }}
  restartPolicy: Always
  command: [vllm, serve, {{ include "kbqa.baseModel" $ | quote }}]
  args:
    {{- with include "kbqa.baseRevision" $ }}
    - --revision={{ . }}
    {{- end }}
    - --host=127.0.0.1
    - --port=8000
    - --enable-scale-out
    - --logprobs-mode=processed_logprobs
    - --hf-overrides={"head_dtype":"float32"}
    - --dtype={{ $vllm.precision }}
    - --max-model-len={{ include "kbqa.maxModelLen" $ }}
    - --gpu-memory-utilization={{ $vllm.gpuMemoryUtilization }}
    - --tensor-parallel-size={{ int $values.gpus }}
    {{- if $vllm.lora.enabled }}
    - --enable-lora
    - --max-loras={{ int $vllm.lora.maxLoras }}
    - --max-lora-rank={{ int $vllm.lora.maxRank }}
    {{- end }}
    {{- range $vllm.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    # What it compiles and caches goes here; the user has no entry in the image's list of users.
    - {name: HOME, value: /tmp}
    - {name: USER, value: kbqa}
    - {name: XDG_CACHE_HOME, value: /tmp/cache}
    - {name: TRITON_CACHE_DIR, value: /tmp/triton}
    - {name: TORCHINDUCTOR_CACHE_DIR, value: /tmp/inductor}
    - {name: VLLM_SERVER_DEV_MODE, value: "1"}
    - {name: VLLM_NO_USAGE_STATS, value: "1"}
    {{- if $vllm.lora.enabled }}
    - {name: VLLM_ALLOW_RUNTIME_LORA_UPDATING, value: "1"}
    {{- end }}
    {{- include "kbqa.modelEnvironment" $ | nindent 4 }}
  {{- include "kbqa.containerSecurity" $ | nindent 2 }}
  resources:
    {{- include "kbqa.resources" (list $values.vllmResources $values.gpus $values.gpuResource) | nindent 4 }}
  startupProbe:
    {{- include "kbqa.vllmProbe" . | nindent 4 }}
    periodSeconds: 10
    timeoutSeconds: 8
    failureThreshold: {{ div $vllm.startupSeconds 10 }}
  livenessProbe:
    {{- include "kbqa.vllmProbe" . | nindent 4 }}
    periodSeconds: 20
    timeoutSeconds: 15
    failureThreshold: 6
  volumeMounts:
    - {name: models, mountPath: /models, readOnly: true}
    - {name: home, mountPath: {{ include "kbqa.home" $ }}, readOnly: true}
    {{- if eq $.Values.policyStore.type "volume" }}
    - {name: policies, mountPath: /policies, readOnly: true}
    {{- end }}
    - {name: engine-tmp, mountPath: /tmp}
    - {name: shared-memory, mountPath: /dev/shm}
{{- end }}

{{- define "kbqa.vllmProbe" -}}
exec:
  command:
    - python3
    - -c
    - import urllib.request; urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=5)
{{- end }}

{{- define "kbqa.vllmVolumes" -}}
{{ include "kbqa.modelVolume" . }}
- name: engine-tmp
  emptyDir: {sizeLimit: 20Gi}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.vllm.sharedMemory }}}
{{- end }}
