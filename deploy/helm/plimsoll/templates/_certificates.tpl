{{/* Pod of the Job and of the CronJob that create the Secrets. */}}
{{- define "plimsoll.certificatesPod" -}}
{{- $certificates := .Values.certificates -}}
{{- if ge (int $certificates.selfSigned.renewBeforeDays) (int $certificates.selfSigned.days) -}}
{{- fail "certificates.selfSigned.renewBeforeDays must be less than certificates.selfSigned.days" -}}
{{- end -}}
metadata:
  labels:
    app.kubernetes.io/name: plimsoll-certificates
    app.kubernetes.io/part-of: plimsoll
    {{- with .Values.additionalLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: plimsoll-certificates
  automountServiceAccountToken: true
  enableServiceLinks: false
  restartPolicy: OnFailure
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "plimsoll.podSecurity" . | nindent 2 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with (.Values.affinity).nodeAffinity }}
  affinity:
    nodeAffinity:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  containers:
  - name: certificates
    image: {{ include "plimsoll.image" (dict "root" . "image" $certificates.selfSigned.image) }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
    - certificates
    - --secrets={{ .Release.Namespace }}
    - --secret-name=watcher={{ $certificates.secretNames.watcher }}
    - --secret-name=scheduler={{ $certificates.secretNames.scheduler }}
    - --secret-name=actuator={{ $certificates.secretNames.actuator }}
    - --secret-name=authority={{ $certificates.selfSigned.authoritySecretName }}
    - --days={{ $certificates.selfSigned.days }}
    - --renew-before={{ $certificates.selfSigned.renewBeforeDays }}d
    {{- with $certificates.selfSigned.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "plimsoll.containerSecurity" . | nindent 4 }}
{{- end }}
