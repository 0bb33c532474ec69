{{/* What the first run's recipe needs. recipes.yaml is generated from the package's recipes. */}}

{{/* The needs of the recipe, as JSON: base, revision, context (tokens), loraRank, demonstrations (a file). */}}
{{- define "kbqa.recipe" -}}
{{- $start := .Values.trainer.autoStart -}}
{{- $known := .Files.Get "recipes.yaml" | fromYaml -}}
{{- if not (hasKey $known $start.recipe) -}}
{{- fail (printf "trainer.autoStart.recipe: there is no recipe %q (known: %s)" $start.recipe (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $needs := get $known $start.recipe -}}
{{- $context := dig "rollout.max_tokens" $needs.context $start.overrides -}}
{{- $rank := dig "optimisation.lora.rank" $needs.loraRank $start.overrides -}}
{{- $file := ternary (dig "cold_start.file" $needs.demonstrations $start.overrides) "" $start.coldStart -}}
{{- dict "base" $needs.base "revision" $needs.revision "context" (int $context) "loraRank" (int $rank) "demonstrations" $file | toJson -}}
{{- end }}

{{/* The model that training and vLLM start with; empty if the policy needs none. */}}
{{- define "kbqa.baseModel" -}}
{{- .Values.model.name | default (dig "base_model" "" .Values.trainer.autoStart.overrides) | default (include "kbqa.recipe" . | fromJson).base -}}
{{- end }}

{{/* Its commit on the hub; empty for the newest one, where none is known. */}}
{{- define "kbqa.baseRevision" -}}
{{- $needs := include "kbqa.recipe" . | fromJson -}}
{{- .Values.model.revision | default (ternary $needs.revision "" (eq (include "kbqa.baseModel" .) $needs.base)) -}}
{{- end }}

{{- define "kbqa.maxModelLen" -}}
{{- int .Values.vllm.maxModelLen | default (max 8192 (int (include "kbqa.recipe" . | fromJson).context)) -}}
{{- end }}

{{/* Whether the training takes pods beside the trainer's. */}}
{{- define "kbqa.severalNodes" -}}
{{- if and .Values.trainer.enabled (gt (int .Values.trainer.nodes) 1) }}true{{ end -}}
{{- end }}

{{- define "kbqa.trainingProcesses" -}}
{{- int .Values.trainer.processes | default (max 1 (int .Values.trainer.gpus)) -}}
{{- end }}
