{{- define "hotrow.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hotrow.selector" -}}
app.kubernetes.io/name: hotrow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hotrow.labels" -}}
{{ include "hotrow.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "hotrow.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "hotrow.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "hotrow.configMap" -}}
{{- .Values.existingConfigMap | default (printf "%s-config" (include "hotrow.fullname" .)) -}}
{{- end -}}

{{- define "hotrow.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "hotrow.checkValues" -}}
{{- if and .Values.config .Values.existingConfigMap -}}
{{- fail "set either config or existingConfigMap, not both" -}}
{{- end -}}
{{- if not (or .Values.config .Values.existingConfigMap) -}}
{{- fail "config is required: the text of hotrow.toml, as in example-values.yaml" -}}
{{- end -}}
{{- if .Values.config -}}
{{- range $name, $port := dict "data" .Values.ports.data "admin" .Values.ports.admin -}}
{{- $line := printf "(?m)^\\s*%s\\s*=\\s*\"(0\\.0\\.0\\.0|\\[::\\]):%d\"" $name (int $port) -}}
{{- if not (regexMatch $line $.Values.config) -}}
{{- $rule := printf "config must have [listen] %s = \"0.0.0.0:%d\"" $name (int $port) -}}
{{- $why := "probes and the service reach a pod by its address" -}}
{{- fail (printf "%s: %s, and ports.%s is %d" $rule $why $name (int $port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
