{{/* What is outside of the release, as the network policies name it. */}}

{{/* Destinations by name: URL, or several with spaces between, and who needs them. Only those that the values use. */}}
{{- define "kbqa.destinations" -}}
{{- $v := .Values -}}
{{- $sidecar := "sidecar" -}}
{{- $loads := list -}}
{{- if include "kbqa.baseModel" . -}}
{{- $loads = append $loads "trainer" -}}
{{- if eq $v.rolloutWorker.engine $sidecar }}{{ $loads = append $loads "rollout-worker" }}{{ end -}}
{{- if eq $v.gateway.engine $sidecar }}{{ $loads = append $loads "gateway" }}{{ end -}}
{{- end -}}
{{- $services := list "kg-server" "rollout-worker" "trainer" "gateway" -}}
{{- $queues := list "rollout-worker" "trainer" -}}
{{- if not (include "kbqa.gatewayRedisUsed" .) }}{{ $queues = append $queues "gateway" }}{{ end -}}
{{- if $v.redis.enabled }}{{ $queues = list }}{{ end -}}
{{- $bucket := printf "https://s3.%s.amazonaws.com" (default "us-east-1" $v.policyStore.s3.region) -}}
{{- $all := dict
      "hub" (dict "url" (ternary "" (default "https://huggingface.co" $v.model.endpoint) $v.model.offline) "from" $loads)
      "bucket" (dict "url" (ternary (default $bucket $v.policyStore.s3.endpoint) "" (eq $v.policyStore.type "s3")) "from" (list "rollout-worker" "trainer" "gateway"))
      "judge" (dict "url" $v.judge.baseUrl "from" (list "rollout-worker"))
      "encoder" (dict "url" $v.embedding.url "from" (list "kg-server"))
      "endpoint" (dict "url" $v.graph.endpoint.url "from" (list "kg-server" "jobs"))
      "graph" (dict "url" $v.graph.url "from" (list "jobs"))
      "kgServer" (dict "url" $v.kgServer.externalUrl "from" (list "rollout-worker" "trainer" "gateway" "jobs"))
      "vllm" (dict "url" $v.gateway.vllmUrl "from" (list "gateway"))
      "chat" (dict "url" (dig "CHAT_URL" "" $v.gateway.settings) "from" (list "gateway"))
      "tracker" (dict "url" (ternary "https://api.wandb.ai" "" (contains "wandb" (dig "SINKS" "" $v.trainer.settings))) "from" (list "trainer"))
      "redis" (dict "url" (include "kbqa.redisUrls" ($v.externalRedis.sentinels.servers | default (compact (list $v.externalRedis.address)))) "from" $queues)
      "sentinels" (dict "url" (include "kbqa.redisUrls" $v.externalRedis.sentinels.addresses) "from" $queues)
      "traces" (dict "url" $v.tracing.url "from" $services)
      "proxy" (dict "url" ($v.proxy.https | default $v.proxy.http) "from" (append $services "jobs")) -}}
{{- range $name, $one := $all }}{{ if not $one.url }}{{ $_ := unset $all $name }}{{ end }}{{ end -}}
{{- toYaml $all -}}
{{- end }}

{{/* An egress rule to a destination: (list $ name URL). */}}
{{- define "kbqa.egressTo" -}}
{{- $ := index . 0 -}}{{- $name := index . 1 -}}{{- $url := urlParse (index . 2) -}}
{{- $host := regexReplaceAll ":[0-9]+$" $url.host "" -}}
{{- $peers := get $.Values.networkPolicy.destinations $name -}}
- to:
    {{- if $peers }}
    {{- toYaml $peers | nindent 4 }}
    {{- else if regexMatch "^[0-9.]+$" $host }}
    - ipBlock: {cidr: {{ $host }}/32}
    {{- else if regexMatch "\\.svc(\\.|$)" $host }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ index (splitList "." $host) 1 }}}}
    {{- else if not (contains "." $host) }}
    - podSelector: {}
    {{- else }}
    {{- include "kbqa.publicAddresses" $ | nindent 4 }}
    {{- end }}
  ports: [{port: {{ include "kbqa.portOf" (index . 2) }}, protocol: TCP}]
{{- end }}

{{/* Addresses (HOST:PORT) as URLs with spaces between; nothing for none. */}}
{{- define "kbqa.redisUrls" -}}
{{- range $n, $address := . }}{{ if $n }} {{ end }}redis://{{ $address }}{{ end -}}
{{- end }}

{{/* Every address but those of networkPolicy.closed. */}}
{{- define "kbqa.publicAddresses" -}}
{{- $four := list -}}{{- $six := list -}}
{{- range .Values.networkPolicy.closed }}{{ if contains ":" . }}{{ $six = append $six . }}{{ else }}{{ $four = append $four . }}{{ end }}{{ end -}}
- ipBlock: {cidr: 0.0.0.0/0, except: {{ toJson $four }}}
- ipBlock: {cidr: "::/0", except: {{ toJson $six }}}
{{- end }}

{{- define "kbqa.portOf" -}}
{{- $url := urlParse . -}}
{{- if regexMatch ":[0-9]+$" $url.host -}}
{{- regexFind "[0-9]+$" $url.host -}}
{{- else -}}
{{- get (dict "https" 443 "redis" 6379) $url.scheme | default 80 -}}
{{- end -}}
{{- end }}
