{{/* What the schema of the values cannot say: values that each are good and together are not. */}}
{{- define "ringfence.checks" -}}
{{- $peers := .Values.tls.peers -}}
{{- $clients := .Values.tls.clients -}}
{{- if and (eq .Values.access.mode "enforced") (eq $peers.mode "off") -}}
{{- fail "access.mode is enforced and tls.peers.mode is off: any Pod could join as a node and read what rights protect; set tls.peers.mode to clusterSecret, secret or certManager, or access.mode to off" -}}
{{- end -}}
{{- if and (eq .Values.access.mode "enforced") (eq $peers.enforcement "permissive") -}}
{{- fail "access.mode is enforced and tls.peers.enforcement is permissive: nodes without TLS would be admitted; set access.mode to permissive until every node has TLS" -}}
{{- end -}}
{{- if and (eq $peers.mode "off") (eq $peers.enforcement "permissive") -}}
{{- fail "tls.peers.enforcement is permissive and tls.peers.mode is off: name the TLS that the nodes are to get in tls.peers.mode" -}}
{{- end -}}
{{- if and $peers.trustedSecretName (not (has $peers.mode (list "secret" "certManager"))) -}}
{{- fail (printf "tls.peers.trustedSecretName is set and tls.peers.mode is %s: only certificates are signed by a CA; set tls.peers.mode to secret or certManager" $peers.mode) -}}
{{- end -}}
{{- if eq $clients.mode "off" -}}
{{- if .Values.leaseApi.enabled -}}
{{- fail "leaseApi.enabled is true and tls.clients.mode is off: clients of Kubernetes show tokens over TLS only; set tls.clients.mode to secret or certManager" -}}
{{- end -}}
{{- if .Values.tls.http -}}
{{- fail "tls.http is true and tls.clients.mode is off: the HTTP port shows the certificate of the client port; set tls.clients.mode to secret or certManager" -}}
{{- end -}}
{{- if or $clients.required $clients.principal $clients.trustedSecretName -}}
{{- fail "tls.clients.required, principal or trustedSecretName is set and tls.clients.mode is off: without TLS clients show no certificate; set tls.clients.mode to secret or certManager" -}}
{{- end -}}
{{- else if and (or $clients.required $clients.principal) (not $clients.trustedSecretName) -}}
{{- fail "tls.clients.required or principal is set and tls.clients.trustedSecretName is empty: name the Secret whose ca.crt signs the certificates of clients" -}}
{{- end -}}
{{- $fullname := include "ringfence.fullname" . -}}
{{- range $port, $issuerRef := dict "peers" .Values.certManager.peersIssuerRef "clients" .Values.certManager.clientsIssuerRef -}}
{{- $mode := ternary $peers.mode $clients.mode (eq $port "peers") -}}
{{- if and (eq $mode "certManager") (not $issuerRef) (not $.Values.certManager.backToOwnCA) -}}
{{- $name := printf "%s-%s" $fullname $port -}}
{{- $live := lookup "cert-manager.io/v1" "Certificate" $.Release.Namespace $name -}}
{{- if and $live (or (ne $live.spec.issuerRef.name $name) (ne (default "Issuer" $live.spec.issuerRef.kind) "Issuer") (ne (default "cert-manager.io" $live.spec.issuerRef.group) "cert-manager.io")) -}}
{{- fail (printf "certManager.%sIssuerRef is empty, and the issuer %s signs the certificate %s now: a CA of the chart would sign again, which nodes and clients may not trust any more; name that issuer, or set certManager.backToOwnCA to true if all of them trust the chart's" $port $live.spec.issuerRef.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.mirror.namespace (eq .Values.mirror.namespace (include "ringfence.floors" .)) -}}
{{- fail (printf "mirror.namespace and the namespace of floors are both %q: accounts that write Leases there could lower floors; set mirror.floorsNamespace to another namespace" .Values.mirror.namespace) -}}
{{- end -}}
{{- if and .Values.priorityClass.create .Values.priorityClass.name -}}
{{- fail (printf "priorityClass.create is true and priorityClass.name is %q: set one of them" .Values.priorityClass.name) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.podMonitor.enabled) -}}
{{- fail "metrics.prometheusRule.enabled is true and metrics.podMonitor.enabled is false: the alerts select the job of the PodMonitor, and would never fire; set metrics.podMonitor.enabled" -}}
{{- end -}}
{{- with .Values.restore -}}
{{- $object := contains "://" .backup -}}
{{- if and .backup (not .digest) -}}
{{- fail (printf "restore.backup is %q and restore.digest is empty: a file cannot prove itself; set restore.digest to the digest that `ringfence backup` printed" .backup) -}}
{{- end -}}
{{- if and (not .backup) (or .digest .volume .rules) -}}
{{- fail "restore.digest, volume or rules is set and restore.backup is empty: name the backup, or leave all of restore as it is by default" -}}
{{- end -}}
{{- if and .backup (not $object) (not .volume) -}}
{{- fail (printf "restore.backup is the file %q and restore.volume is empty: name the volume with it, as {secret: {secretName: ringfence-backup}}" .backup) -}}
{{- end -}}
{{- if and $object .volume -}}
{{- fail (printf "restore.backup is %q, an object of a bucket, and restore.volume is set: leave restore.volume empty" .backup) -}}
{{- end -}}
{{- if and .rules (not $.Values.access.rules) -}}
{{- fail "restore.rules is true and access.rules is empty: the restored cluster would have no rule; set restore.rules to false, or name rules" -}}
{{- end -}}
{{- end -}}
{{- $aliases := list -}}
{{- range .Values.access.jwtIssuers -}}
{{- if has .alias $aliases -}}
{{- fail (printf "access.jwtIssuers has the alias %q twice: two issuers are two aliases" .alias) -}}
{{- end -}}
{{- $aliases = append $aliases .alias -}}
{{- end -}}
{{- end -}}
