{{/* The graph: its volume, and the container that loads it. */}}

{{- define "kbqa.graphVolume" -}}
- name: graphs
  {{- if .Values.graph.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "kbqa.claimName" (list . "graphs" .Values.graph.persistence) }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{/* What stands for the password in the record of an endpoint; kg_server and the job read it. */}}
{{- define "kbqa.endpointSecret" -}}
{{- if and (eq .Values.graph.source "endpoint") .Values.graph.endpoint.existingSecret }}
- name: SPARQL_ENDPOINT_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.graph.endpoint.existingSecret }}, key: {{ .Values.graph.endpoint.secretKey }}}}
{{- end }}
{{- end }}

{{- define "kbqa.graphFile" -}}
{{- if eq .Values.graph.source "url" -}}
/tmp/{{ base (urlParse .Values.graph.url).path }}
{{- else -}}
/graph/{{ .Values.graph.configMapKey }}
{{- end -}}
{{- end }}

{{- define "kbqa.graphCommand" -}}
{{- $graph := .Values.graph -}}
{{- $command := list "kbqa" "kg" -}}
{{- if eq $graph.source "world" -}}
{{- $command = concat $command (list "load-dataset" "world" "--seed" (int $graph.seed | toString)) -}}
{{- else if eq $graph.source "endpoint" -}}
{{- $command = concat $command (list "attach" $graph.name $graph.endpoint.url) -}}
{{- with $graph.endpoint.auth -}}
{{- $command = concat $command (list "--auth" . "--secret-env" "SPARQL_ENDPOINT_SECRET") -}}
{{- end -}}
{{- with $graph.endpoint.user -}}
{{- $command = concat $command (list "--user" .) -}}
{{- end -}}
{{- else -}}
{{- $command = concat $command (list "load" $graph.name (include "kbqa.graphFile" .)) -}}
{{- end -}}
{{- toJson (concat $command $graph.loadArguments) -}}
{{- end }}

{{- define "kbqa.graphLoader" -}}
- name: load
  image: {{ include "kbqa.image" (list . .Values.kgServer.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: {{ include "kbqa.graphCommand" . }}
  env:
    - {name: HOME, value: /tmp}
    - {name: KBQA_HOME, value: {{ include "kbqa.home" . }}}
    {{- include "kbqa.outsideEnvironment" . | nindent 4 }}
    {{- include "kbqa.endpointSecret" . | nindent 4 }}
  {{- include "kbqa.containerSecurity" . | nindent 2 }}
  resources:
    {{- toYaml .Values.graph.resources | nindent 4 }}
  volumeMounts:
    - {name: graphs, mountPath: {{ include "kbqa.home" . }}}
    - {name: tmp, mountPath: /tmp}
    {{- include "kbqa.certificatesMount" . | nindent 4 }}
    {{- if eq .Values.graph.source "configMap" }}
    - {name: file, mountPath: /graph, readOnly: true}
    {{- end }}
{{- end }}

{{- define "kbqa.graphDownload" -}}
- name: download
  image: {{ include "kbqa.image" (list . .Values.kgServer.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - python3
    - -c
    - |
      import hashlib, sys, urllib.request
      url, path, expected = sys.argv[1:]
      digest = hashlib.sha256()
      with urllib.request.urlopen(url, timeout=60) as source, open(path, "wb") as target:
          while block := source.read(1 << 20):
              digest.update(block)
              target.write(block)
      if expected and digest.hexdigest() != expected:
          sys.exit(f"{url} has SHA-256 {digest.hexdigest()}, and graph.sha256 is {expected}")
    - {{ .Values.graph.url | quote }}
    - {{ include "kbqa.graphFile" . | quote }}
    - {{ .Values.graph.sha256 | quote }}
  {{- with include "kbqa.outsideEnvironment" . }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  {{- include "kbqa.containerSecurity" . | nindent 2 }}
  resources:
    {{- toYaml .Values.graph.resources | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- include "kbqa.certificatesMount" . | nindent 4 }}
{{- end }}
