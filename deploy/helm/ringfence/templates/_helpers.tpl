{{/* The name of an installation: what all objects of its namespace begin with. */}}
{{- define "ringfence.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- if gt (len $full) 48 -}}
{{- fail (printf "name %q has %d characters, at most 48 leave room for the names of Pods: set fullnameOverride" $full (len $full)) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "name %q cannot be that of a Service (lower-case letters, digits and -, a letter first): set fullnameOverride" $full) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{/* The name of an object of the whole Kubernetes: installations in two namespaces may have one name. */}}
{{- define "ringfence.clusterName" -}}
{{ .Release.Namespace }}.{{ include "ringfence.fullname" . }}
{{- end -}}

{{/* What finds the Pods of this installation, and of no other. */}}
{{- define "ringfence.selector" -}}
app.kubernetes.io/name: ringfence
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ringfence.labels" -}}
{{ include "ringfence.selector" . }}
app.kubernetes.io/part-of: ringfence
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "ringfence.serviceAccount" -}}
{{ default (include "ringfence.fullname" .) .Values.serviceAccount.name }}
{{- end -}}

{{- define "ringfence.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* The domain of the headless Service: each node is a name below it. */}}
{{- define "ringfence.peersDomain" -}}
{{ include "ringfence.fullname" . }}-peers.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The names of the nodes that form the cluster, with commas between them. */}}
{{- define "ringfence.initialNames" -}}
{{- $start := int .Values.ordinals.start -}}
{{- $names := list -}}
{{- range $i := until (int .Values.initialMembers) -}}
{{- $names = append $names (printf "%s-%d" (include "ringfence.fullname" $) (add $start $i)) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{- define "ringfence.peersSecret" -}}
{{- $kind := ternary "cluster-secret" "peers-tls" (eq .Values.tls.peers.mode "clusterSecret") -}}
{{ default (printf "%s-%s" (include "ringfence.fullname" .) $kind) .Values.tls.peers.secretName }}
{{- end -}}

{{- define "ringfence.clientsSecret" -}}
{{ default (printf "%s-clients-tls" (include "ringfence.fullname" .)) .Values.tls.clients.secretName }}
{{- end -}}

{{/* Not empty if the client port has TLS. */}}
{{- define "ringfence.clientsTls" -}}
{{- if ne .Values.tls.clients.mode "off" }}true{{ end -}}
{{- end -}}

{{/* What a port listens on; the argument is a list of the root and the port. */}}
{{- define "ringfence.listen" -}}
{{- $address := (index . 0).Values.listenAddress -}}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end -}}
{{ $address }}:{{ index . 1 }}
{{- end -}}

{{- define "ringfence.floors" -}}
{{ default .Release.Namespace .Values.mirror.floorsNamespace }}
{{- end -}}

{{- define "ringfence.priorityClass" -}}
{{- $made := ternary (include "ringfence.clusterName" .) "" .Values.priorityClass.create -}}
{{ default $made .Values.priorityClass.name }}
{{- end -}}
