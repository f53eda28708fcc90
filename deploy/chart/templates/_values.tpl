{{- /* SPDX-License-Identifier: Apache-2.0

Checks the values, and reads those of NVIDIA's gpu-operator chart that have a meaning here:

  daemonsets.*                            as in values.yaml
  hostPaths.driverInstallDir              agent.driverRoot
  toolkit.enabled                         runtime.enabled
  operator.runtimeClass                   runtime.runtimeClass
  dcgmExporter.enabled, .config.name      exporter.enabled, exporter.configMap
  dcgmExporter.serviceMonitor.enabled     podMonitor.enabled
  imagePullSecrets                        image.pullSecrets
  driver, devicePlugin, gfd, dcgm, nodeStatusExporter, nfd, cdi: "enabled" is read and
  refused where Tessera cannot do what it says
*/ -}}

{{- define "tessera.check" -}}
{{- if ne .Release.Namespace "tessera-system" -}}
{{- fail (printf "namespace %q: the admission policies name the service accounts of namespace tessera-system: use --namespace tessera-system" .Release.Namespace) -}}
{{- end -}}
{{- range list "driver" "migManager" "vgpuManager" "vgpuDeviceManager" "vfioManager" "kataManager" "sandboxWorkloads" "sandboxDevicePlugin" "ccManager" "gdrcopy" "gds" -}}
{{- if (index $.Values . | default dict).enabled -}}
{{- if eq . "driver" -}}
{{- fail "driver.enabled=true: only tessera-operator installs drivers: install Tessera with deploy/operator, or install a driver on the nodes and leave the value out" -}}
{{- end -}}
{{- fail (printf "%s.enabled=true: Tessera has no such component: leave the value out" .) -}}
{{- end -}}
{{- end -}}
{{- range list "devicePlugin" "gfd" -}}
{{- if eq (toString (index $.Values . | default dict).enabled) "false" -}}
{{- fail (printf "%s.enabled=false: it is a part of tessera-agent and cannot be left out: leave the value out" .) -}}
{{- end -}}
{{- end -}}
{{- if not (or (include "tessera.runtimeEnabled" .) (has "--binding=allocate" .Values.agent.extraArgs)) -}}
{{- fail "runtime.enabled=false: without tessera-runtime no container gets its GPUs: add --binding=allocate to agent.extraArgs (NVIDIA's runtime then gives them), or enable it" -}}
{{- end -}}
{{- if and .Values.webhook.enabled (not .Values.scheduler.enabled) -}}
{{- fail "scheduler.enabled=false: the scheduler serves the webhook: set webhook.enabled=false, too" -}}
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

{{- define "tessera.podMonitorEnabled" -}}
{{- $theirs := ((.Values.dcgmExporter | default dict).serviceMonitor | default dict).enabled -}}
{{- if or $theirs .Values.podMonitor.enabled -}}true{{- end -}}
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
