{{/* Common parts of the services' Deployments, up to the pod template. Takes root and service. */}}
{{- define "plimsoll.deploymentSpec" -}}
{{- $args := dict "root" .root "service" .service -}}
replicas: {{ get (include "plimsoll.value" (merge (dict "key" "replicas") $args) | fromYaml) "value" }}
revisionHistoryLimit: {{ .root.Values.revisionHistoryLimit }}
{{- $strategy := get (include "plimsoll.value" (merge (dict "key" "strategy") $args) | fromYaml) "value" | default dict }}
{{- if eq ($strategy.type | default "RollingUpdate") "Recreate" }}
{{- /* Helm merges the default rollingUpdate, which Recreate must not have. */}}
{{- $strategy = omit $strategy "rollingUpdate" }}
{{- end }}
strategy:
  {{- toYaml $strategy | nindent 2 }}
selector:
  matchLabels:
    app.kubernetes.io/name: plimsoll-{{ .service }}
{{- end }}

{{/* Labels and annotations of a service's pods. Takes root and service. */}}
{{- define "plimsoll.podMetadata" -}}
{{- $labels := get (include "plimsoll.value" (dict "root" .root "service" .service "key" "podLabels") | fromYaml) "value" -}}
{{- $annotations := get (include "plimsoll.value" (dict "root" .root "service" .service "key" "podAnnotations") | fromYaml) "value" -}}
labels:
  app.kubernetes.io/name: plimsoll-{{ .service }}
  app.kubernetes.io/part-of: plimsoll
  {{- with .root.Values.additionalLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Scheduling constraints of a pod. Takes root and service. */}}
{{- define "plimsoll.scheduling" -}}
{{- $args := dict "root" .root "service" .service -}}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" }}
{{- with get (include "plimsoll.value" (merge (dict "key" $key) $args) | fromYaml) "value" }}
{{- if kindIs "string" . }}
{{ $key }}: {{ . }}
{{- else }}
{{ $key }}:
{{- toYaml . | nindent (ternary 2 0 (kindIs "map" .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- with include "plimsoll.affinity" $args }}
affinity:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "plimsoll.spread" $args }}
topologySpreadConstraints:
{{- . | nindent 0 }}
{{- end }}
{{- end }}

{{/* An unprivileged user, as Pod Security's level restricted requires. */}}
{{- define "plimsoll.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "plimsoll.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Common flags of all services. Takes root and service. */}}
{{- define "plimsoll.commonArgs" -}}
- --tls-cert=/etc/plimsoll/tls/tls.crt
- --tls-key=/etc/plimsoll/tls/tls.key
- --tls-ca=/etc/plimsoll/tls/ca.crt
- --metrics-listen={{ include "plimsoll.address" (dict "root" .root "port" 8080) }}
- --health-listen={{ include "plimsoll.address" (dict "root" .root "port" 8081) }}
- --log-level={{ get (include "plimsoll.value" (dict "root" .root "service" .service "key" "logLevel") | fromYaml) "value" }}
- --log-format={{ .root.Values.logFormat }}
{{- end }}

{{/* Environment of the services that have a Lease. Takes own, the values of the service. */}}
{{- define "plimsoll.environment" -}}
env:
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with .own.env }}
{{ toYaml . }}
{{- end }}
{{- with .own.envFrom }}
envFrom:
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Probes, resources and mounts of a container. Takes own, the values of the service. */}}
{{- define "plimsoll.containerEnd" -}}
livenessProbe:
  httpGet:
    path: /livez
    port: health
  initialDelaySeconds: 30
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
{{- with .own.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "plimsoll.containerSecurity" . }}
{{- end }}
