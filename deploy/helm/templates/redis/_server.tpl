{{/*
A Redis: (list $ "redis" .Values.redis durable). What is durable, queues and counts, is written to a file and never evicted;
what is not, cached answers, is evicted when memory runs out. docs/operations.md explains each setting.
*/}}
{{- define "kbqa.redisServer" -}}
{{- $ := index . 0 -}}{{- $component := index . 1 -}}{{- $values := index . 2 -}}{{- $durable := index . 3 -}}
{{- $image := $.Values.redis.image -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "kbqa.metadata" (list $ $component) | nindent 2 }}
spec:
  replicas: 1
  # A pod that cannot start is replaced when its template changes, without somebody who deletes it.
  podManagementPolicy: Parallel
  serviceName: {{ include "kbqa.componentName" (list $ $component) }}
  selector:
    matchLabels:
      {{- include "kbqa.selector" (list $ $component) | nindent 6 }}
  template:
    metadata:
      {{- include "kbqa.podMetadata" (list $ $component $values) | nindent 6 }}
    spec:
      {{- include "kbqa.podSpec" (list $ $component $values 30) | nindent 6 }}
      containers:
        - name: redis
          image: {{ include "kbqa.image" (list $ $image) }}
          imagePullPolicy: {{ $image.pullPolicy }}
          # The password is not an argument, which anybody on the node could read.
          command:
            - sh
            - -c
            - |
              printf 'requirepass "%s"\n' "$REDISCLI_AUTH" >/tmp/redis.conf
              {{- if $durable }}
              exec redis-server /tmp/redis.conf --dir /data --appendonly yes --appendfsync everysec --save "" \
                --maxmemory {{ $values.maxmemory }} --maxmemory-policy noeviction
              {{- else }}
              exec redis-server /tmp/redis.conf --dir /data --appendonly no --save "" \
                --maxmemory {{ $values.maxmemory }} --maxmemory-policy allkeys-lru
              {{- end }}
          env:
            - name: REDISCLI_AUTH
              valueFrom: {secretKeyRef: {name: {{ include "kbqa.redisSecret" $ }}, key: {{ $.Values.redis.secretKey }}}}
          ports:
            - {name: redis, containerPort: 6379, protocol: TCP}
          {{- include "kbqa.containerSecurity" $ | nindent 10 }}
          {{- range $probe, $failures := dict "startupProbe" 60 "readinessProbe" 3 "livenessProbe" 6 }}
          {{ $probe }}:
            exec: {command: [sh, -c, "redis-cli ping | grep -q PONG"]}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: {{ $failures }}
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: data
          {{- if and $durable $values.persistence.enabled }}
          persistentVolumeClaim: {claimName: {{ include "kbqa.claimName" (list $ $component $values.persistence) }}}
          {{- else }}
          emptyDir: {}
          {{- end }}
        - name: tmp
          emptyDir: {}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "kbqa.metadata" (list $ $component) | nindent 2 }}
spec:
  selector:
    {{- include "kbqa.selector" (list $ $component) | nindent 4 }}
  ports:
    - {name: redis, port: 6379, targetPort: redis, protocol: TCP}
---
{{ include "kbqa.disruptionBudget" (list $ $component 1) }}
{{- end }}
