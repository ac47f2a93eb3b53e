{{- define "romancy.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "romancy.labels" -}}
{{ include "romancy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "romancy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "romancy.secret" -}}
{{- .Values.secret.existingName | default (include "romancy.name" .) }}
{{- end }}

{{- define "romancy.secretData" -}}
database-url: {{ required "set secret.databaseUrl, or secret.existingName" .Values.secret.databaseUrl | quote }}
tokens: {{ required "set secret.tokens, or secret.existingName" .Values.secret.tokens | quote }}
{{- end }}

{{- define "romancy.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

# The tag as JSON, because one of digits alone may be a number, which Helm would write as 2.0250101e+07.
{{- define "romancy.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | toJson | trimAll "\"" }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "romancy.env" -}}
- name: ROMANCY_DATABASE
  valueFrom:
    secretKeyRef:
      name: {{ include "romancy.secret" . | quote }}
      key: database-url
- name: ROMANCY_SCHEMA
  value: {{ .Values.schema | quote }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "romancy.migrate" -}}
- name: migrate
  command: ["romancy", "migrate"]
  {{- include "romancy.container" . | nindent 2 }}
  env:
    {{- include "romancy.env" . | nindent 4 }}
{{- end }}
