// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// render returns what "helm template" prints, or its error.
func render(flags ...string) string {
	text, err := bed.Shared.Helm(ctx, append([]string{"template", "tessera", chartDir(), "--namespace", "tessera-system"}, flags...)...)
	if err != nil {
		return err.Error()
	}
	return text
}

func TestTheChartPassesLint(t *testing.T) {
	helm(t, "lint", "--strict", chartDir(), "--namespace", "tessera-system")
}

func TestTheChartRejectsValuesThatItDoesNotSupport(t *testing.T) {
	for flags, want := range map[string]string{
		"--namespace=other":               "use --namespace tessera-system",
		"--set=driver.enabled=true":       "only tessera-operator installs drivers",
		"--set=migManager.enabled=true":   "with nvidia-smi mig",
		"--set=gfd.enabled=false":         "part of tessera-agent",
		"--set=toolkit.enabled=false":     "add --binding=allocate",
		"--set=scheduler.enabled=false":   "set webhook.enabled=false",
		"--set=agent.driverRoot=driver":   "does not match pattern '^/'",
		"--set=sharing.memoryUnit=MB":     "value must be one of 'GiB', 'MiB'",
		"--set=scheduler.replica=1":       "additional properties 'replica' not allowed",
		"--set=scheduler.replicas=0":      "minimum: got 0, want 1",
		"--set=agent.extraArgs={verbose}": "'verbose' does not match pattern '^--",
	} {
		if text := render(flags); !strings.Contains(text, want) {
			t.Errorf("%s: %q is missing in %.600s", flags, want, text)
		}
	}
}

// Covers Tessera's values, and values of NVIDIA's chart with the same meaning.
func TestValuesReachTheObjects(t *testing.T) {
	for flags, wants := range map[string][]string{
		"--set=agent.driverRoot=/opt/driver":                                                       {"--driver-root=/opt/driver\n", "--driver-root-ctr-path=/driver-root/opt/driver\n"},
		"--set=hostPaths.driverInstallDir=/run/nvidia/driver":                                      {"--driver-root=/run/nvidia/driver\n"},
		"--set=operator.runtimeClass=gpu":                                                          {"kind: RuntimeClass\nmetadata:\n  name: gpu\n"},
		"--set=dcgmExporter.serviceMonitor.enabled=true":                                           {"kind: ServiceMonitor"},
		"--set=podMonitor.enabled=true":                                                            {"kind: PodMonitor\nmetadata:\n  name: tessera-operator\n"},
		"--set=prometheusRule.enabled=true":                                                        {"kind: PrometheusRule", "\n        - alert: TesseraGPUUnhealthy\n"},
		"--set=dashboards.enabled=true":                                                            {"name: tessera-dashboard-fleet\n", "grafana_dashboard: \"1\"\n", "  tessera-node.json: |\n    {\n"},
		"--set=startupTaint.keys={example.com/starting}":                                           {"--startup-taint=example.com/starting\n", "- {key: example.com/starting, operator: Exists}\n", "'[\"example.com/starting\"]'"},
		"--set=startupTaint.keys=null":                                                             {"--startup-taint=none\n"},
		"--set=dcgmExporter.enabled=false":                                                         {"--collect-interval=0\n"},
		"--set=exporter.intervalMs=5000":                                                           {"--collect-interval=5000\n"},
		"--set=dcgmExporter.config.name=mine":                                                      {"--collectors=/etc/dcgm-exporter/dcgm-metrics.csv\n", "configMap:\n            name: mine\n"},
		"--set=imagePullSecrets={mine}":                                                            {"imagePullSecrets:\n        - name: mine\n"},
		"--set=daemonsets.updateStrategy=OnDelete":                                                 {"updateStrategy:\n    type: OnDelete\n  template"},
		"--set=daemonsets.priorityClassName=low":                                                   {"priorityClassName: low\n"},
		"--set=image.registry=registry.test/a,image.tag=v1":                                        {"image: registry.test/a/agent:v1\n", "image: registry.test/a/scheduler:v1\n"},
		"--set=sharing.vcuda=false,sharing.memoryUnit=MiB":                                         {"--shared-resources=gpu-mem\n", "--memory-unit=MiB\n"},
		"--set=sharing.vcuda=false,sharing.gpuMem=false":                                           {"--shared-resources=none\n"},
		"--set=limits.enabled=false":                                                               {"--limits-dir=\n"},
		"--set=limits.failOpen={a,b},limits.stopBypass={c}":                                        {"--limits-fail-open=a,b\n", "--limits-stop-bypass=c\n"},
		"--set=assignments.writers={system:serviceaccount:old:ext}":                                {", 'system:serviceaccount:old:ext'"},
		"--set=scheduler.policy=BestFit":                                                           {"--policy=BestFit\n"},
		"--set=scheduler.clusterIP=10.0.0.50":                                                      {"\n  clusterIP: 10.0.0.50\n  ports:"},
		"--set=console.enabled=true,console.otherTenants=sums,console.prometheusUrl=http://p:9090": {"--other-tenants=sums\n", "--prometheus-url=http://p:9090\n"},
		"--set=console.enabled=true,console.prometheus.tokenSecret=s":                              {"--prometheus-token-file=/prometheus-token/token\n", "secretName: s\n"},
		"--set=console.enabled=true,console.oidc.issuerUrl=https://l,console.oidc.clientSecret=s":  {"--oidc-issuer-url=https://l\n", "--oidc-scopes=openid\n", "--oidc-client-secret-file=/oidc-client-secret/client-secret\n", "secretName: s\n"},
		"--set=runtime.repair=true":                                                                {"--repair-engine\n", "mountPath: /host/etc/containerd\n              readOnly: false\n"},
	} {
		text := render(flags)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in %.600s", flags, want, text)
			}
		}
	}
	for flags, unwanted := range map[string]string{
		"--set=toolkit.enabled=false,agent.extraArgs={--binding=allocate}": "name: install-runtime",
		"--set=webhook.enabled=false":                                      "WebhookConfiguration",
		"--set=webhook.enabled=false,scheduler.enabled=false":              "kind: Deployment",
		"--set=privilegedPolicy.enabled=false":                             "name: tessera-privileged",
		"--set=networkPolicy.enabled=false":                                "kind: NetworkPolicy",
		"--set=gpuManagerMetric.enabled=false":                             "name: gpu-manager-metric",
		"--set=agent.createDeviceNodes=false":                              "--create-device-nodes",
	} {
		if text := render(flags); strings.Contains(text, unwanted) || !strings.Contains(text, "kind: DaemonSet") {
			t.Errorf("%s: %q is still there: %.600s", flags, unwanted, text)
		}
	}
}

// A pod with a GPU keeps running during upgrade, rollback, uninstall and the next install.
func TestUpgradeRollbackUninstallAndInstallAgain(t *testing.T) {
	install := func(flags ...string) {
		t.Helper()
		if err := bed.InstallChart(flags...); err != nil {
			t.Fatal(err)
		}
	}
	removeAtTheEnd(t)
	install()
	pod := bed.Single("through-upgrades", 1, "--hold", "3600").Create(t)
	bed.WaitPhase(t, pod, "Running")
	unchanged := func(when string) {
		t.Helper()
		if text := bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); text != "Running 0" {
			t.Errorf("%s the pod is %s", when, text)
		}
	}
	arguments := func() string {
		return bed.Kubectl(t, "-n", "tessera-system", "get", "daemonset/tessera-agent", "deployment/tessera-scheduler",
			"-o", "jsonpath={.items[*].spec.template.spec.containers[0].args}")
	}
	// Returns the certificates that the scheduler wrote into objects of the chart.
	written := func() string {
		return bed.Kubectl(t, "-n", "tessera-system", "get", "secret/tessera-scheduler-client", "secret/tessera-scheduler-authority", "-o", "jsonpath={.items[*].data}") +
			bed.Kubectl(t, "get", "validatingwebhookconfiguration/tessera-webhook", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
	}
	secrets := written()
	if !strings.Contains(secrets, "tls.key") {
		t.Fatalf("the scheduler has written no certificate: %s", secrets)
	}

	install("--set", "scheduler.policy=BestFit", "--set", "agent.extraArgs={--log-format=json}")
	if text := arguments(); !strings.Contains(text, "--policy=BestFit") || !strings.Contains(text, "--log-format=json") {
		t.Errorf("the upgrade did not reach the pods: %s", text)
	}
	unchanged("after an upgrade")
	bed.Simgpu(t, 1, "inject", "lost", "--gpu", "7")
	bed.Eventually(t, bed.PodTimeout, "tessera status names the lost GPU", func() bool {
		text, code := status()
		return code == 1 && strings.Contains(text, "GPUUnhealthy: 1 of 8 GPUs is unhealthy")
	})
	bed.Simgpu(t, 1, "recover", "--gpu", "7")

	helm(t, "rollback", "tessera", "--namespace", "tessera-system", "--wait", "--timeout=180s")
	if text := arguments(); strings.Contains(text, "BestFit") || strings.Contains(text, "log-format") {
		t.Errorf("the rollback did not reach the pods: %s", text)
	}
	unchanged("after a rollback")
	if now := written(); now != secrets {
		t.Error("certificates changed with an upgrade or a rollback")
	}

	helm(t, "uninstall", "tessera", "--namespace", "tessera-system", "--wait", "--timeout=180s")
	if text, code := status(); code != 1 || !strings.Contains(text, "not installed") {
		t.Errorf("tessera status ends with %d after helm uninstall\n%s", code, text)
	}
	left := bed.Kubectl(t, "get", "-A", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name",
		"daemonsets,deployments,services,serviceaccounts,secrets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,"+
			"runtimeclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations")
	if left != "" {
		t.Errorf("helm uninstall left %s", left)
	}
	unchanged("after an uninstall")

	install()
	unchanged("after the next install")
	if text, code := status("--wait", "--timeout=180"); code != 0 || !strings.Contains(text, "3 of 3 nodes ready") {
		t.Errorf("tessera status ends with %d\n%s", code, text)
	}
	second := bed.Single("after-install", 1).Create(t)
	bed.WaitPhase(t, second, "Succeeded")
	if bed.UUIDsIn(bed.Logs(t, second))[0] == bed.UUIDsIn(bed.Logs(t, pod))[0] {
		t.Error("the GPU of a running pod was given to another one")
	}
}
