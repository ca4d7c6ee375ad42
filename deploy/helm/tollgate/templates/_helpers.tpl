{{- define "tollgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tollgate.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "tollgate.gatewayLabels" -}}
{ app.kubernetes.io/name: tollgate, app.kubernetes.io/instance: {{ .Release.Name }}, app.kubernetes.io/component: gateway }
{{- end -}}

{{- define "tollgate.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The host and the port of backend.url, and whether it names pods of this cluster. */}}
{{- define "tollgate.backendHost" -}}
{{ regexReplaceAll ":[0-9]+$" (urlParse .Values.backend.url).host "" }}
{{- end -}}
{{- define "tollgate.backendPort" -}}
{{- $url := urlParse .Values.backend.url -}}
{{ regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end -}}

{{- define "tollgate.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "tollgate.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{- define "tollgate.tlsMount" -}}
{{- if .Values.tls.secretName }}
volumeMounts:
  - { name: tls, mountPath: /etc/tollgate/tls, readOnly: true }
{{- end }}
{{- end -}}

{{- define "tollgate.tlsVolume" -}}
{{- if .Values.tls.secretName }}
- name: tls
  secret: { secretName: {{ .Values.tls.secretName }}, defaultMode: 0440 }
{{- end }}
{{- end -}}
