{{/* Labels of every object. */}}
{{- define "plimsoll.labels" -}}
app.kubernetes.io/part-of: plimsoll
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version) }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Metadata of an object. Takes root, name, and optionally namespace, service, labels, annotations.
Names are fixed: the services find each other and their Leases by them.
*/}}
{{- define "plimsoll.metadata" -}}
{{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.additionalAnnotations | default dict) -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- with .service }}
  app.kubernetes.io/name: plimsoll-{{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "plimsoll.labels" .root | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Image of a program. Takes root and image. */}}
{{- define "plimsoll.image" -}}
{{- $tag := .image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .image.repository }}:{{ $tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Value of a service, or else of all services. Takes root, service, key. Returns YAML with the key "value". */}}
{{- define "plimsoll.value" -}}
{{- $own := index .root.Values .service -}}
{{- $value := index .root.Values .key -}}
{{- if and (hasKey $own .key) (not (kindIs "invalid" (index $own .key))) -}}
{{- $value = index $own .key -}}
{{- end -}}
{{- toYaml (dict "value" $value) -}}
{{- end }}

{{/* Address of a port, for the IP family of pods. Takes root and port. */}}
{{- define "plimsoll.address" -}}
{{- if eq .root.Values.settings.ipFamily "IPv6" }}[::]{{ else }}0.0.0.0{{ end }}:{{ .port }}
{{- end }}

{{/* Required affinity terms with a labelSelector each. Takes terms and service. */}}
{{- define "plimsoll.affinityTerms" -}}
{{- $selector := dict "matchLabels" (dict "app.kubernetes.io/name" (printf "plimsoll-%s" .service)) -}}
{{- range .terms }}
{{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" $selector }}{{ end }}
{{- end }}
{{- end }}

{{/* Affinity of a service. Takes root and service. */}}
{{- define "plimsoll.affinity" -}}
{{- $affinity := deepCopy (get (include "plimsoll.value" (dict "root" .root "service" .service "key" "affinity") | fromYaml) "value" | default dict) -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- with index $affinity $kind -}}
{{- $_ := include "plimsoll.affinityTerms" (dict "service" $.service "terms" (.requiredDuringSchedulingIgnoredDuringExecution | default list)) -}}
{{- end -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* Topology spread constraints of a service. Takes root and service. */}}
{{- define "plimsoll.spread" -}}
{{- $constraints := deepCopy (get (include "plimsoll.value" (dict "root" .root "service" .service "key" "topologySpreadConstraints") | fromYaml) "value" | default list) -}}
{{- $_ := include "plimsoll.affinityTerms" (dict "service" .service "terms" $constraints) -}}
{{- with $constraints }}{{ toYaml . }}{{ end -}}
{{- end }}
