{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "underspan.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}
