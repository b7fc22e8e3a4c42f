{{/* DNS servers: pods, and servers given by address. */}}
{{- define "plimsoll.dnsEgress" -}}
- to:
  - namespaceSelector: {}
  {{- range .Values.networkPolicies.dnsCIDRs }}
  - ipBlock:
      cidr: {{ . | quote }}
  {{- end }}
  ports:
  {{- include "plimsoll.dnsPorts" . | nindent 2 }}
{{- end }}

{{- define "plimsoll.dnsPorts" -}}
- port: 53
  protocol: UDP
- port: 53
  protocol: TCP
{{- end }}

{{/* The API server has no pods to select, and AWS's endpoints have no fixed addresses. */}}
{{- define "plimsoll.apiEgress" -}}
- ports:
  {{- range .Values.networkPolicies.apiPorts }}
  - port: {{ . }}
  {{- end }}
{{- end }}
