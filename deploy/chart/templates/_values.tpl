{{- /* SPDX-License-Identifier: Apache-2.0

Checks the values, and reads those of NVIDIA's gpu-operator chart that have a meaning here:

  daemonsets.*                            as in values.yaml
  hostPaths.driverInstallDir              agent.driverRoot
  toolkit.enabled                         runtime.enabled
  operator.runtimeClass                   runtime.runtimeClass
  operator.tolerations                    of tessera-operator, which "tessera install --operator" installs
  dcgmExporter.enabled, .config.name      exporter.enabled, exporter.configMap
  dcgmExporter.serviceMonitor.enabled, .interval, .additionalLabels
                                          serviceMonitor.enabled, .interval, .labels
  imagePullSecrets                        image.pullSecrets
  others                                  files/nvidia-values.yaml: rejected or ignored, with the reason
*/ -}}

{{- /* The value with a name such as "a.b", as a text: (list .Values "a.b"). "" if there is none. */ -}}
{{- define "tessera.valueAt" -}}
{{- $at := index . 0 -}}
{{- range splitList "." (index . 1) -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) -}}{{- toString $at -}}{{- end -}}
{{- end -}}

{{- /* As tessera.valueAt, but "" for a value that is false or empty. */ -}}
{{- define "tessera.setValueAt" -}}
{{- $value := include "tessera.valueAt" . -}}
{{- if not (has $value (list "false" "[]" "map[]")) -}}{{- $value -}}{{- end -}}
{{- end -}}

{{- /* Values of NVIDIA's chart without effect, one a line with the reason. */ -}}
{{- define "tessera.ignored" -}}
{{- $theirs := .Files.Get "files/nvidia-values.yaml" | fromYaml -}}
{{- range $name, $why := $theirs.ignored }}
{{- $off := eq (include "tessera.valueAt" (list $.Values (printf "%s.enabled" $name))) "false" }}
{{- if and (not $off) (include "tessera.setValueAt" (list $.Values $name)) }}
{{ $name }}: {{ $why }}
{{- end }}
{{- end }}
{{- range $name, $keys := $theirs.partly }}
{{- $rest := index $.Values $name | default dict }}
{{- range $keys }}{{ $rest = omit $rest . }}{{ end }}
{{- if $rest }}
{{ $name }}: only {{ join ", " $keys }} {{ len $keys | eq 1 | ternary "has" "have" }} an effect
{{- end }}
{{- end }}
{{- end -}}

{{- /* Sections of values.yaml. The templates read all of them, and null as a value removes a section with its
defaults. */ -}}
{{- define "tessera.sections" -}}
image daemonsets daemonsets.rollingUpdate agent startupTaint runtime sharing limits scheduler console
console.prometheus console.oidc webhook privilegedPolicy assignments networkPolicy gpuManagerMetric exporter
podMonitor serviceMonitor prometheusRule dashboards
{{- end -}}

{{- /* Fails with the problems of a list, as one error. */ -}}
{{- define "tessera.failWith" -}}
{{- if eq (len .) 1 -}}{{- fail (first .) -}}{{- end -}}
{{- if . -}}{{- fail (printf "%d values cannot be used:\n  %s" (len .) (join "\n  " .)) -}}{{- end -}}
{{- end -}}

{{- /* Each template that reads values includes this first: Helm renders templates in no fixed order. */ -}}
{{- define "tessera.check" -}}
{{- if ne .Release.Namespace "tessera-system" -}}
{{- fail (printf "namespace %q: the admission policies name the service accounts of namespace tessera-system: use --namespace tessera-system" .Release.Namespace) -}}
{{- end -}}
{{- $problems := list -}}
{{- range include "tessera.sections" . | replace "\n" " " | splitList " " -}}
{{- $above := include "tessera.valueAt" (list $.Values (splitList "." . | initial | join ".")) -}}
{{- if and (or (not (contains "." .)) $above) (not (include "tessera.valueAt" (list $.Values .))) -}}
{{- $problems = append $problems (printf "%s=null: the chart needs this section: leave it out, then it has its defaults" .) -}}
{{- end -}}
{{- end -}}
{{- include "tessera.failWith" $problems -}}
{{- if (.Values.driver | default dict).enabled -}}
{{- $problems = append $problems "driver.enabled=true: only tessera-operator installs drivers: use \"tessera install --operator\" instead of the chart, or install a driver on the nodes and leave the value out" -}}
{{- end -}}
{{- $theirs := .Files.Get "files/nvidia-values.yaml" | fromYaml -}}
{{- range $name, $why := $theirs.rejected -}}
{{- with include "tessera.setValueAt" (list $.Values $name) -}}
{{- $problems = append $problems (printf "%s=%s: %s" $name . $why) -}}
{{- end -}}
{{- end -}}
{{- range $name, $why := $theirs.required -}}
{{- if eq (include "tessera.valueAt" (list $.Values $name)) "false" -}}
{{- $problems = append $problems (printf "%s=false: %s" $name $why) -}}
{{- end -}}
{{- end -}}
{{- include "tessera.failWith" $problems -}}
{{- if not (or (include "tessera.runtimeEnabled" .) (has "--binding=allocate" .Values.agent.extraArgs)) -}}
{{- fail "runtime.enabled=false: without tessera-runtime no container gets its GPUs: add --binding=allocate to agent.extraArgs (NVIDIA's runtime then gives them), or enable it" -}}
{{- end -}}
{{- range $ns := .Values.limits.stopBypass -}}
{{- if or (has $ns $.Values.limits.failOpen) (has "*" $.Values.limits.failOpen) (and (eq $ns "*") $.Values.limits.failOpen) -}}
{{- fail (printf "limits.stopBypass=%s: limits.failOpen lets processes of this namespace run without a limiter: name each namespace in one of the two" $ns) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.webhook.enabled (not .Values.scheduler.enabled) -}}
{{- fail "scheduler.enabled=false: the scheduler serves the webhook: set webhook.enabled=false, too" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (include "tessera.serviceMonitorEnabled" .) -}}
{{- fail "podMonitor.enabled=true and serviceMonitor.enabled=true: Prometheus would scrape each pod twice: enable one of them" -}}
{{- end -}}
{{- end -}}

{{- define "tessera.driverRoot" -}}
{{- (.Values.hostPaths | default dict).driverInstallDir | default .Values.agent.driverRoot -}}
{{- end -}}

{{- /* "true" or "" */ -}}
{{- define "tessera.runtimeEnabled" -}}
{{- $toolkit := (.Values.toolkit | default dict).enabled -}}
{{- if kindIs "bool" $toolkit -}}{{- if $toolkit -}}true{{- end -}}
{{- else if .Values.runtime.enabled -}}true{{- end -}}
{{- end -}}

{{- define "tessera.runtimeClass" -}}
{{- (.Values.operator | default dict).runtimeClass | default .Values.runtime.runtimeClass -}}
{{- end -}}

{{- /* "true" or "" */ -}}
{{- define "tessera.exporterEnabled" -}}
{{- $theirs := (.Values.dcgmExporter | default dict).enabled -}}
{{- if kindIs "bool" $theirs -}}{{- if $theirs -}}true{{- end -}}
{{- else if .Values.exporter.enabled -}}true{{- end -}}
{{- end -}}

{{- define "tessera.exporterConfigMap" -}}
{{- ((.Values.dcgmExporter | default dict).config | default dict).name | default .Values.exporter.configMap -}}
{{- end -}}

{{- /* "true" or "" */ -}}
{{- define "tessera.serviceMonitorEnabled" -}}
{{- $theirs := ((.Values.dcgmExporter | default dict).serviceMonitor | default dict).enabled -}}
{{- if or $theirs .Values.serviceMonitor.enabled -}}true{{- end -}}
{{- end -}}

{{- define "tessera.serviceMonitorInterval" -}}
{{- ((.Values.dcgmExporter | default dict).serviceMonitor | default dict).interval | default .Values.serviceMonitor.interval -}}
{{- end -}}

{{- /* As YAML. */ -}}
{{- define "tessera.serviceMonitorLabels" -}}
{{- with ((.Values.dcgmExporter | default dict).serviceMonitor | default dict).additionalLabels | default .Values.serviceMonitor.labels -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* Image and pull policy of a container: (list . "agent"). */ -}}
{{- define "tessera.image" -}}
{{- $values := (index . 0).Values.image -}}
image: {{ $values.registry }}/{{ index . 1 }}:{{ $values.tag }}
imagePullPolicy: {{ $values.pullPolicy }}
{{- end -}}

{{- /* --shared-resources of the agent. */ -}}
{{- define "tessera.sharedResources" -}}
{{- $names := list -}}
{{- if .Values.sharing.gpuMem -}}{{- $names = append $names "gpu-mem" -}}{{- end -}}
{{- if .Values.sharing.vcuda -}}{{- $names = append $names "vcuda" -}}{{- end -}}
{{- join "," $names | default "none" -}}
{{- end -}}
