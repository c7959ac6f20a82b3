{{/* Variables of a node beyond its name and its peers. */}}
{{- define "ringfence.env" -}}
{{- if .Values.mirror.enabled }}
- name: RINGFENCE_KUBE_MIRROR
  value: "true"
# Where tenants may write no Leases.
- name: RINGFENCE_KUBE_FLOORS
  value: {{ default "$(POD_NAMESPACE)" .Values.mirror.floorsNamespace | quote }}
{{- with .Values.mirror.namespace }}
- name: RINGFENCE_KUBE_NAMESPACE
  value: {{ quote . }}
{{- end }}
{{- with .Values.mirror.prefix }}
- name: RINGFENCE_KUBE_PREFIX
  value: {{ quote . }}
{{- end }}
{{- end }}
{{- if .Values.podSessions.enabled }}
- name: RINGFENCE_KUBE_PODS
  value: "true"
{{- end }}
{{- if .Values.replaceOnDataLoss }}
- name: RINGFENCE_REPLACE_ON_DATA_LOSS
  value: "true"
{{- end }}
{{- if eq .Values.access.mode "off" }}
# Every client that reaches the client port may do anything.
- name: RINGFENCE_ALLOW_ANONYMOUS
  value: "true"
{{- else }}
- name: RINGFENCE_ACCESS
  value: {{ .Values.access.mode }}
{{- end }}
{{- if or (ne .Values.access.mode "off") (include "ringfence.clientsTls" .) }}
# For commands by `kubectl exec`: who may run them may change rights.
- name: RINGFENCE_ENDPOINTS
  value: unix:/var/lib/ringfence/node/admin.sock
{{- end }}
{{- with .Values.access.jwtIssuers }}
{{- $issuers := list }}
{{- range . }}
{{- $kind := ternary ",kind=kubernetes" "" (default false .kubernetes) }}
{{- $issuers = append $issuers (printf "%s=%s,audience=%s,jwks=/etc/ringfence/jwks/%s/%s%s" .alias .issuer .audience .alias .key $kind) }}
{{- end }}
- name: RINGFENCE_JWT_ISSUER
  value: {{ join " " $issuers }}
{{- end }}
{{- include "ringfence.env.tls" . }}
{{- if .Values.listenAddress }}
- name: RINGFENCE_LISTEN_CLIENT
  value: {{ include "ringfence.listen" (list . 7420) | quote }}
- name: RINGFENCE_LISTEN_PEER
  value: {{ include "ringfence.listen" (list . 7421) | quote }}
- name: RINGFENCE_LISTEN_HTTP
  value: {{ include "ringfence.listen" (list . 7422) | quote }}
{{- end }}
{{- if .Values.leaseApi.enabled }}
- name: RINGFENCE_LISTEN_LEASE_API
  value: {{ ternary (printf "[::]:%v" .Values.leaseApi.port) (include "ringfence.listen" (list . .Values.leaseApi.port)) (empty .Values.listenAddress) | quote }}
{{- end }}
{{- if .Values.backup.enabled }}
- name: RINGFENCE_BACKUP_DIR
  value: /var/lib/ringfence-backup
- name: RINGFENCE_BACKUP_EVERY
  value: {{ .Values.backup.every }}
{{- end }}
{{- with .Values.restore }}
{{- if .backup }}
# A node that belongs to a cluster ignores it.
- name: RINGFENCE_RESTORE
  value: {{ ternary .backup (printf "/etc/ringfence/restore/%s" .backup) (contains "://" .backup) | quote }}
- name: RINGFENCE_DIGEST
  value: {{ quote .digest }}
{{- if .rules }}
- name: RINGFENCE_RULES
  value: /etc/ringfence/rules/rules.toml
{{- end }}
{{- end }}
{{- with .quietTime }}
- name: RINGFENCE_QUIET_TIME
  value: {{ . }}
{{- end }}
{{- end }}
- name: RINGFENCE_LOG_FORMAT
  value: {{ .Values.logFormat }}
{{- end -}}

{{- define "ringfence.env.tls" -}}
{{- $peers := .Values.tls.peers }}
{{- if eq $peers.mode "clusterSecret" }}
{{- $files := list }}
{{- range $peers.secretKeys }}{{ $files = append $files (printf "/etc/ringfence/cluster/%s" .) }}{{ end }}
# Two files with a comma between them while the secret is replaced.
- name: RINGFENCE_CLUSTER_SECRET_FILE
  value: {{ join "," $files }}
{{- else if ne $peers.mode "off" }}
- name: RINGFENCE_PEER_CERT_FILE
  value: /etc/ringfence/peers/tls.crt
- name: RINGFENCE_PEER_KEY_FILE
  value: /etc/ringfence/peers/tls.key
- name: RINGFENCE_PEER_TRUSTED_CA_FILE
  value: /etc/ringfence/{{ ternary "peers-ca" "peers" (not (empty $peers.trustedSecretName)) }}/ca.crt
# A CA may sign more than nodes: these names make a node.
- name: RINGFENCE_PEER_TLS_NAME
  value: {{ join "," (default (list (printf "*.%s" (include "ringfence.peersDomain" .))) $peers.names) | quote }}
{{- end }}
{{- if eq $peers.enforcement "permissive" }}
- name: RINGFENCE_PEER_TLS_MODE
  value: permissive
{{- end }}
{{- $clients := .Values.tls.clients }}
{{- if ne $clients.mode "off" }}
- name: RINGFENCE_CERT_FILE
  value: /etc/ringfence/clients/tls.crt
- name: RINGFENCE_KEY_FILE
  value: /etc/ringfence/clients/tls.key
{{- if $clients.trustedSecretName }}
- name: RINGFENCE_TRUSTED_CA_FILE
  value: /etc/ringfence/clients-ca/ca.crt
{{- end }}
{{- if $clients.required }}
- name: RINGFENCE_CLIENT_CERT_AUTH
  value: "true"
{{- end }}
{{- with $clients.principal }}
- name: RINGFENCE_CLIENT_CERT_PRINCIPAL
  value: {{ . }}
{{- end }}
{{- end }}
{{- if .Values.tls.http }}
- name: RINGFENCE_HTTP_CERT_FILE
  value: /etc/ringfence/clients/tls.crt
- name: RINGFENCE_HTTP_KEY_FILE
  value: /etc/ringfence/clients/tls.key
{{- if $clients.trustedSecretName }}
- name: RINGFENCE_HTTP_TRUSTED_CA_FILE
  value: /etc/ringfence/clients-ca/ca.crt
{{- end }}
{{- end }}
{{- end -}}

{{/* Mounts beside the data. */}}
{{- define "ringfence.mounts" -}}
{{- range $volume := fromJsonArray (include "ringfence.sources" .) }}
- name: {{ $volume.name }}
  mountPath: {{ $volume.path }}
  readOnly: true
{{- end }}
{{- if .Values.restore.volume }}
- name: restore
  mountPath: /etc/ringfence/restore
  readOnly: true
{{- end }}
{{- if .Values.backup.enabled }}
- name: backup
  mountPath: /var/lib/ringfence-backup
{{- end }}
{{- end -}}

{{- define "ringfence.volumes" -}}
{{- range $volume := fromJsonArray (include "ringfence.sources" .) }}
- name: {{ $volume.name }}
  {{- if $volume.secret }}
  secret:
    secretName: {{ $volume.secret }}
    # 0400. The Pod's own group may read it as well, which is how the node does.
    defaultMode: 256
    {{- with $volume.only }}
    # Its other keys may make certificates.
    items: [{key: {{ . }}, path: {{ . }}}]
    {{- end }}
  {{- else }}
  configMap:
    name: {{ $volume.configMap }}
  {{- end }}
{{- end }}
{{- with .Values.restore.volume }}
- name: restore
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Each file source of a node, in JSON: {name, path, and secret or configMap; only: its key}. */}}
{{- define "ringfence.sources" -}}
{{- $sources := list -}}
{{- $peers := include "ringfence.peersSecret" . -}}
{{- if eq .Values.tls.peers.mode "clusterSecret" -}}
{{- $sources = append $sources (dict "name" "cluster-secret" "path" "/etc/ringfence/cluster" "secret" $peers) -}}
{{- else if ne .Values.tls.peers.mode "off" -}}
{{- $sources = append $sources (dict "name" "peers-tls" "path" "/etc/ringfence/peers" "secret" $peers) -}}
{{- with .Values.tls.peers.trustedSecretName -}}
{{- $sources = append $sources (dict "name" "peers-ca" "path" "/etc/ringfence/peers-ca" "secret" . "only" "ca.crt") -}}
{{- end -}}
{{- end -}}
{{- if include "ringfence.clientsTls" . -}}
{{- $sources = append $sources (dict "name" "clients-tls" "path" "/etc/ringfence/clients" "secret" (include "ringfence.clientsSecret" .)) -}}
{{- with .Values.tls.clients.trustedSecretName -}}
{{- $sources = append $sources (dict "name" "clients-ca" "path" "/etc/ringfence/clients-ca" "secret" . "only" "ca.crt") -}}
{{- end -}}
{{- end -}}
{{- if .Values.access.rules -}}
{{- $sources = append $sources (dict "name" "rules" "path" "/etc/ringfence/rules" "configMap" (printf "%s-rules" (include "ringfence.fullname" .))) -}}
{{- end -}}
{{- range .Values.access.jwtIssuers -}}
{{- $sources = append $sources (dict "name" (printf "jwks-%s" .alias) "path" (printf "/etc/ringfence/jwks/%s" .alias) "configMap" .configMap) -}}
{{- end -}}
{{- toJson $sources -}}
{{- end -}}
